"""Requests for a server from a workload: what training draws and every compared controller gets.

Puts a workload, a prompt set and a server's measured capacity together; drawing itself is
`engine.workload`'s.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Floats
from engine.request import Request
from engine.workload import Episode, PromptSet, WorkloadConfig, build_episode, class_shares
from engine.workload.arrivals import counts_in_capacity
from engine.workload.capacity_mix import Asked
from engine.workload.lengths import Bounds, Encode, byte_encoder
from engine.workload.text_draws import mean_output_tokens
from engine.workload.traces import ArrivalSource

if TYPE_CHECKING:
    from engine.serving import LiveServer

LOG = logging.getLogger(__name__)
KEPT_TEXTS = 4096  # encoded prompts kept: all that ship, cut ones included

Draw = Callable[[np.random.Generator], list[Request]]


class Drawing:
    """Episodes of one workload on one server; called with a generator it gives the requests alone.

    `capacity_rps` is what the workload's loads are multiples of.
    """

    def __init__(
        self,
        server: LiveServer,
        config: WorkloadConfig,
        prompts: PromptSet,
        classes: ClassTable = DEFAULT_CLASSES,
    ) -> None:
        """Tokenizes every prompt and reads the trace, once.

        A server without a tokenizer (the tiny one of the tests) is given the bytes of a prompt.
        Raises UserError for a class that comes and has no prompts, and when the longest prompt and
        output exceed the server's context; lengths of a trace are clipped to it instead, which is
        logged and counted.
        """
        self.config, self.prompts, self.classes = config, prompts, classes
        tokenizer = server.tokenizer
        self._stop_ids = frozenset() if tokenizer is None else frozenset({tokenizer.eos_id})
        self._context = server.settings.context_tokens
        self._source: ArrivalSource | None = None if config.trace is None else config.trace.load()

        encode = prompt_encoder(server)

        @lru_cache(maxsize=KEPT_TEXTS)
        def encoded(text: str) -> tuple[int, ...]:
            return tuple(encode(text))

        self._encoded = encoded
        self._server, self.asked = server, self._mix()

    @cached_property
    def capacity_rps(self) -> float:
        """Of the server on the mix, disturbances left out."""
        return self._server.capacity_of(self.asked)

    def __call__(self, generator: np.random.Generator) -> list[Request]:
        """One episode's requests, which carry their disturbances along."""
        return self.episode(generator).requests

    def episode(self, generator: np.random.Generator) -> Episode:
        """Requests, true change points, disturbances, and the number of clipped requests."""
        made = build_episode(
            self.config,
            self.prompts,
            lambda text: list(self._encoded(text)),
            self.capacity_rps if counts_in_capacity(self.config) else math.nan,
            self.classes,
            self._stop_ids,
            generator,
            self._source,
            self._context,
        )
        if made.clipped:
            LOG.info(
                "workload %s: %d of %d requests are longer than can be served and were clipped",
                self.config.name,
                made.clipped,
                len(made.requests),
            )
        return made

    def _mix(self) -> list[Asked]:
        """What will be asked for: every class's share of the requests and its mean lengths."""
        shares = class_shares(self.config, self.classes, self._source)
        traced = self._trace_lengths()
        lengths = self._text_lengths(shares) if traced is None else {}
        return [
            Asked(name, float(share), *(traced or lengths[c]))
            for c, (name, share) in enumerate(zip(self.classes.names, shares, strict=True))
            if share > 0
        ]

    def _trace_lengths(self) -> tuple[float, float] | None:
        """Mean prompt and output tokens of the trace's window as they are served."""
        use = self.config.trace
        if use is None or self._source is None:
            return None
        # A generated trace would bring a fleet's requests: one a second tells its lengths too.
        rate_rps = None if self._source.stretches else 1.0
        sample_s = math.inf if self._source.stretches else 3600.0
        trace = use.draw(self._source, rate_rps, sample_s, np.random.default_rng(0))
        if trace.prompt_tokens is None or trace.output_tokens is None or not len(trace):
            return None
        bounds = Bounds(self.config.prompt_tokens, self.config.max_tokens, self._context)
        pairs = zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
        served = np.array([bounds.fitted(prompt, output) for prompt, output in pairs])
        return float(served[:, 0].mean()), float(served[:, 1].mean())

    def _text_lengths(self, shares: Floats) -> dict[int, tuple[float, float]]:
        """By index of the classes that come: mean tokens of prompts, and of what may be emitted.

        `shares` [C] are those of the classes. Raises UserError if a prompt is too long.
        """
        config = self.config
        lengths = {
            c: [
                min(len(self._encoded(text)), config.prompt_tokens)
                for text in self.prompts.of(self.classes.names[c])
            ]
            for c in np.flatnonzero(shares > 0).tolist()
        }
        longest = max(max(of_class) for of_class in lengths.values())
        if longest + config.max_tokens > self._context:
            raise UserError(
                f"workload {config.name!r}: prompts of up to {longest} tokens and max_tokens of "
                f"{config.max_tokens} exceed the context of {self._context}; lower max_tokens or "
                "use shorter prompts"
            )
        output = mean_output_tokens(config.max_tokens)
        return {c: (float(np.mean(of_class)), output) for c, of_class in lengths.items()}


def prompt_encoder(server: LiveServer) -> Encode:
    """From a prompt to the tokens that the server reads; without a tokenizer, its bytes."""
    if server.tokenizer is None:
        return byte_encoder(server.decoder.config.vocab_size)
    return server.tokenizer.chat_prompt
