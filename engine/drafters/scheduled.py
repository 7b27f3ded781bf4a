"""A drafter that gets slower or worse on a schedule, to see whether a controller adapts.

Nothing is pretended: a slow drafter really takes that long, so every clock shows it, and a bad one
really proposes other tokens without knowing it, so its probabilities no longer mean what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from engine.backends.protocol import Children
from engine.drafters.protocol import Drafter
from engine.drafters.wrapper import DrafterWrapper
from engine.errors import UserError
from engine.kernels.beam import BeamState
from engine.protocol import Bools
from engine.state import SlotState, TreeState


@dataclass(frozen=True)
class Fault:
    """What is wrong with the drafter from `begin` until `end`, in iterations or in seconds."""

    begin: float
    end: float = float("inf")
    slowdown: float = 1.0
    """Its draft steps take this many times as long."""
    degraded: float = 0.0
    """Share of nodes all of whose children are other tokens: acceptance falls by this share."""

    def __post_init__(self) -> None:
        if not self.begin < self.end:
            raise UserError(f"fault from {self.begin} to {self.end}: it must end later")
        if not 1.0 <= self.slowdown < float("inf"):
            raise UserError(f"slowdown is {self.slowdown}; expected a factor of at least 1")
        if not 0.0 <= self.degraded <= 1.0:
            raise UserError(f"degraded is {self.degraded}; expected a share from 0 to 1")


def busy_wait(seconds: float) -> None:
    """Take up a core for that long, as a slower network would; sleeping is too coarse."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


class Scheduled(DrafterWrapper):
    """`drafter` under the first fault of `schedule` that holds at the time.

    `now` tells the time, `lambda: engine.clock_s` for the engine's seconds; None counts the
    iterations that drafted. `vocab` is the target's size; `wait` and `clock` are the tests'.
    """

    def __init__(
        self,
        drafter: Drafter,
        schedule: Sequence[Fault],
        vocab: int,
        rng: np.random.Generator,
        now: Callable[[], float] | None = None,
        wait: Callable[[float], None] = busy_wait,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        super().__init__(drafter)
        self.schedule, self.vocab, self.rng = tuple(schedule), vocab, rng
        self.iteration = -1  # the one that drafts, from 0
        self._now, self._wait, self._clock = now, wait, clock

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """The drafter's children, disturbed."""
        self.iteration += 1
        begun = self._clock()
        self.drafter.draft_first(drafting, slots, children)
        self._disturb(self._clock() - begun, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """The drafter's children, disturbed."""
        begun = self._clock()
        self.drafter.draft_next(step, slots, trees, beam, children)
        self._disturb(self._clock() - begun, children)

    def active(self) -> Fault | None:
        """The fault that holds now."""
        now = self.iteration if self._now is None else self._now()
        return next((fault for fault in self.schedule if fault.begin <= now < fault.end), None)

    def _disturb(self, spent_s: float, children: Children) -> None:
        fault = self.active()
        if fault is None:
            return
        if fault.degraded > 0:
            self._degrade(fault.degraded, children.token)
        if fault.slowdown > 1:
            self._wait((fault.slowdown - 1) * spent_s)

    def _degrade(self, share: float, token: np.ndarray) -> None:
        """Move all children of some nodes by a random distance through the vocabulary."""
        nodes = token.shape[:-1]
        # One distance for all siblings keeps them distinct, and any but 0 makes them others.
        by = self.rng.integers(1, self.vocab, nodes) * (self.rng.random(nodes) < share)
        token += by[..., None]
        token %= self.vocab
