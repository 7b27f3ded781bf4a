"""From a workload, prompts and a seed to the list of requests that an engine serves.

Arrivals are drawn first and texts after them, so other prompts or lengths leave arrivals alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.request import Request
from engine.workload.arrivals import arrival_classes, arrival_times, draw_spans
from engine.workload.config import WorkloadConfig
from engine.workload.prompt_set import PromptSet

Encode = Callable[[str], list[int]]


def build_requests(
    config: WorkloadConfig,
    prompts: PromptSet,
    encode: Encode,
    capacity_rps: float,
    classes: ClassTable,
    stop_ids: frozenset[int],
    generator: np.random.Generator,
) -> list[Request]:
    """Requests with ids 0..n-1 in order of arrival; the same seed gives the same list bit for bit.

    `encode` turns a text into token ids, chat template included; it is called on every prompt of
    the classes in use, so that whether a set fits does not depend on the draw (hand in a cached
    `encode` to build many lists). A class never gives one prompt twice in a row if it has two.
    The output cap is uniform in [max_tokens / 2, max_tokens]. The list may be empty when the rate
    is low. UserError: unknown class, class without prompts, prompt too long, capacity not positive.
    """
    spans = draw_spans(config, classes, capacity_rps, generator)
    times_s = arrival_times(spans, config.cv, generator)
    slo_classes = arrival_classes(times_s, spans, generator)
    used = np.any([span.weights > 0 for span in spans], axis=0)
    encoded = [
        [_fitted(text, encode, config, name) for text in prompts.of(name)] if is_used else []
        for name, is_used in zip(classes.names, used, strict=True)
    ]
    last = [-1] * len(encoded)
    requests: list[Request] = []
    for time_s, c in zip(times_s.tolist(), slo_classes.tolist(), strict=True):
        last[c] = _next_prompt(last[c], len(encoded[c]), generator)
        max_tokens = int(
            generator.integers(math.ceil(config.max_tokens / 2), config.max_tokens, endpoint=True)
        )
        prompt = list(encoded[c][last[c]])
        requests.append(Request(len(requests), c, prompt, max_tokens, time_s, stop_ids))
    return requests


def _next_prompt(last: int, count: int, generator: np.random.Generator) -> int:
    """Uniform over `count` prompts, the last one left out."""
    if last < 0 or count == 1:
        return int(generator.integers(count))
    return int((last + 1 + generator.integers(count - 1)) % count)


def _fitted(text: str, encode: Encode, config: WorkloadConfig, name: str) -> list[int]:
    """Token ids of `text`, at most `config.prompt_tokens` of them.

    Text is cut, not ids: a chat template that `encode` puts around it must stay whole.
    """
    ids = encode(text)
    start = text[:40]
    if not ids:
        raise UserError(f"the {name} prompt {start!r} encodes to no token; expected at least one")
    if len(ids) <= config.prompt_tokens:
        return ids
    if not config.truncate:
        raise UserError(
            f"the {name} prompt {start!r} has {len(ids)} tokens and prompt_tokens allows "
            f"{config.prompt_tokens}; raise prompt_tokens, shorten it or set truncate"
        )
    best: list[int] = []
    low, high = 0, len(text)  # `low` characters fit, `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        ids = encode(text[:middle])
        if len(ids) <= config.prompt_tokens:
            low, best = middle, ids
        else:
            high = middle
    if not best:
        raise UserError(
            f"not one character of the {name} prompt {start!r} fits into prompt_tokens = "
            f"{config.prompt_tokens}; raise it"
        )
    return best
