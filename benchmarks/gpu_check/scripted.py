"""Serving with a text and an acceptance that are settled beforehand, on real networks.

The target's choices are overwritten by a random text, and the drafter's children hold its right
token as often as `CHANCES` says; all that either computes is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from engine.backends.forced import Forced
from engine.drafters.steered import Steered
from engine.known_texts import KnownTexts
from engine.request import Request
from engine.serving import LiveServer

# By rank, at every position (ours): a chain of 4 emits 2.8 tokens an iteration. A tree emits more,
# as far as the drafter's own probabilities, which are noise, keep the right node in its beam.
CHANCES = ((0.70, 0.12, 0.05, 0.03),)


class Script:
    """Who is served with which text from now on."""

    def __init__(self, backend: Forced, steered: Steered, rng: np.random.Generator) -> None:
        self.backend = backend
        """What scripted episodes run on."""
        self._steered, self._rng = steered, rng

    def give(self, requests: Sequence[Request]) -> None:
        """Each of these requests a random text as long as it may be; nobody else has one."""
        high = self.backend.vocab_size
        answers = [self._rng.integers(0, high, r.max_tokens).tolist() for r in requests]
        self.backend.texts = self._steered.texts = KnownTexts.of(requests, answers)


@contextmanager
def scripted(
    server: LiveServer, seed: int = 0, chances: Sequence[Sequence[float]] = CHANCES
) -> Iterator[Script]:
    """Within: the server's drafter is steered, and episodes on the script's backend are forced.

    Raises UserError for a table of no chances.
    """
    drafter, forced = server.guard.drafter, Forced(server.backend)
    texts, steering = np.random.default_rng(seed).spawn(2)
    limits = server.settings.limits
    steered = Steered(drafter, chances, forced.vocab_size, limits, steering)
    try:
        server.guard.drafter = steered
        yield Script(forced, steered, texts)
    finally:
        server.guard.drafter = drafter
