"""From a workload, prompts and a seed to the list of requests that an engine serves.

Arrivals are drawn first and texts after them, so other prompts or lengths leave arrivals alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.request import Request
from engine.workload.config import WorkloadConfig
from engine.workload.disturbances import Disturbances
from engine.workload.episode import Arrivals, draw_arrivals
from engine.workload.lengths import Bounds, Encode, cut_to, prompt_of
from engine.workload.prompt_set import PromptSet
from engine.workload.text_draws import next_text, output_tokens
from engine.workload.traces import ArrivalSource


class DrawnRequests(list[Request]):
    """An episode's requests, which carry along what goes wrong while they are served.

    A list like any other for whoever only serves it; a server asks `disturbances_of` it.
    """

    def __init__(self, requests: Iterable[Request], disturbances: Disturbances) -> None:
        super().__init__(requests)
        self.disturbances = disturbances


def disturbances_of(requests: Sequence[Request]) -> Disturbances:
    """What goes wrong while these are served; nothing where they were made by hand."""
    return requests.disturbances if isinstance(requests, DrawnRequests) else Disturbances()


class Episode(NamedTuple):
    """Requests, what they were made from, and how many of them are shorter than they should be."""

    requests: list[Request]
    """Of a workload, `DrawnRequests`."""
    arrivals: Arrivals
    clipped: int  # prompt or output was longer than can be served


def build_episode(
    config: WorkloadConfig,
    prompts: PromptSet,
    encode: Encode,
    capacity_rps: float,
    classes: ClassTable,
    stop_ids: frozenset[int],
    generator: np.random.Generator,
    source: ArrivalSource | None = None,
    context_tokens: int | None = None,
) -> Episode:
    """Requests with ids 0..n-1 in order of arrival; the same seed gives the same list bit for bit.

    `encode` turns a text into token ids, chat template included; it is called on every prompt of
    the classes in use, so that whether a set fits does not depend on the draw (hand in a cached
    `encode` to build many lists). A class never gives one prompt twice in a row if it has two.
    The output cap is uniform in [max_tokens / 2, max_tokens]; a trace with lengths has its own, and
    its prompts are texts of the class joined and cut to length. Disturbances of length then act,
    and what exceeds `context_tokens`, or of a trace the workload's own limits, is clipped.
    The list may be empty when the rate is low. UserError: unknown class, class without prompts,
    prompt too long, capacity not positive, and what `draw_arrivals` raises.
    """
    arrivals = draw_arrivals(config, classes, capacity_rps, generator, source)
    used = _used(arrivals, config, classes)
    texts = [prompts.of(n) if u else () for n, u in zip(classes.names, used, strict=True)]
    traced = arrivals.prompt_tokens is not None and arrivals.output_tokens is not None
    encoded = [
        [
            _encoded(text, encode, name) if traced else _fitted(text, encode, config, name)
            for text in of_class
        ]
        for name, of_class in zip(classes.names, texts, strict=True)
    ]
    limits = Bounds(config.prompt_tokens, config.max_tokens, context_tokens)
    if not traced:  # only disturbances can make these longer, and they are meant to
        limits = Bounds(2**62, 2**62, context_tokens)
    disturbances = arrivals.disturbances
    is_stretched = disturbances.has("prompt_length", "output_length")
    last = [-1] * len(encoded)
    requests: list[Request] = []
    clipped = 0
    columns = zip(arrivals.arrival_s.tolist(), arrivals.slo_class.tolist(), strict=True)
    for i, (time_s, c) in enumerate(columns):
        at = last[c] = next_text(last[c], len(encoded[c]), generator)
        if arrivals.prompt_tokens is not None and arrivals.output_tokens is not None:
            wanted = int(arrivals.prompt_tokens[i]), int(arrivals.output_tokens[i])
        else:
            wanted = len(encoded[c][at]), output_tokens(config.max_tokens, generator)
        if is_stretched:
            wanted = (
                max(1, round(wanted[0] * disturbances.value("prompt_length", time_s))),
                max(1, round(wanted[1] * disturbances.value("output_length", time_s))),
            )
        tokens, max_tokens = limits.fitted(*wanted)
        clipped += (tokens, max_tokens) != wanted
        prompt = list(encoded[c][at])
        if len(prompt) != tokens:
            prompt = prompt_of(texts[c], at, tokens, encode)
            if context_tokens is not None:  # a chat template may be longer than what was wanted
                max_tokens = max(1, min(max_tokens, context_tokens - len(prompt)))
        requests.append(Request(i, c, prompt, max_tokens, time_s, stop_ids))
    return Episode(DrawnRequests(requests, disturbances), arrivals, clipped)


def _used(arrivals: Arrivals, config: WorkloadConfig, classes: ClassTable) -> list[bool]:
    """By class, whether requests of it may come; prompts are checked for all of these."""
    if config.trace is not None:
        return np.isin(np.arange(len(classes.names)), arrivals.slo_class).tolist()
    return np.any([span.weights > 0 for span in arrivals.spans], axis=0).tolist()


def _fitted(text: str, encode: Encode, config: WorkloadConfig, name: str) -> list[int]:
    """Token ids of `text`, at most `config.prompt_tokens` of them."""
    ids = _encoded(text, encode, name)
    if len(ids) <= config.prompt_tokens:
        return ids
    if not config.truncate:
        raise UserError(
            f"the {name} prompt {text[:40]!r} has {len(ids)} tokens and prompt_tokens allows "
            f"{config.prompt_tokens}; raise prompt_tokens, shorten it or set truncate"
        )
    return cut_to(text, config.prompt_tokens, encode, name)


def _encoded(text: str, encode: Encode, name: str) -> list[int]:
    ids = encode(text)
    if not ids:
        raise UserError(
            f"the {name} prompt {text[:40]!r} encodes to no token; expected at least one"
        )
    return ids
