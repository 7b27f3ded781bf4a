"""SGLang's adaptive speculation: a chain as long as an average of accepted drafts suggests.

Rule and constants are those of `adaptive_spec_params.py` in sgl-project/sglang (read in September
2026; research/slo_serving.md §3.4). Batches are sorted by size into four brackets with step counts
and an average of their own:

    e ← 0.8 e + 0.2 · (mean accepted drafts of the batch), unless the bracket is at 0 steps

After 10 batches, and then at every 5th, a bracket goes down through its step counts while
e ≤ previous − 0.5 + down (0.5 + down where the previous is 0), else up while e > current − 0.5.

Probe rule after depth 0: 0 steps tell nothing, so the next decision of the bracket always tries its
smallest positive count, with the average as it was before.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from policies.parameters import check_whole
from policies.tunable import Declared, Tunable

WEIGHT = 0.2
WARM_UP, INTERVAL = 10, 5  # batches


class Bracket(NamedTuple):
    """What batches from some size on may draft."""

    batch: int
    steps: tuple[int, ...]
    down: float


BRACKETS = (
    Bracket(1, (1, 3, 5, 7), -0.25),
    Bracket(8, (0, 1, 3), 0.0),
    Bracket(32, (0, 1), 0.0),
    Bracket(64, (0,), 0.0),
)


@dataclass
class Average:
    """Where a bracket stands."""

    steps: tuple[int, ...]
    down: float
    current: int
    accepted: float
    """The average e of accepted drafts."""
    batches: int = 0

    def update(self, accepted: float) -> None:
        """A batch accepted so many drafts a request."""
        if self.current > 0:
            self.accepted += WEIGHT * (accepted - self.accepted)
        self.batches += 1
        if self.batches > WARM_UP and (self.batches - WARM_UP) % INTERVAL == 0:
            self.current = self._next()

    def _next(self) -> int:
        at = self.steps.index(self.current)
        if self.current == 0:
            probed = self.steps[min(at + 1, len(self.steps) - 1)]
            if probed > 0 and self.accepted < 0:  # never drafted: as if it had begun there
                self.accepted = probed - 1.0
            return probed
        begun = at
        while at > 0 and self.accepted <= max(self.steps[at - 1] - 0.5, 0.5) + self.down:
            at -= 1
        if at < begun:
            return self.steps[at]
        while at < len(self.steps) - 1 and self.accepted > self.steps[at] - 0.5:
            at += 1
        return self.steps[at]


class SglangEma(Controller):
    """SGLang's EMA rule: chains whose length follows the accepted drafts, by batch size."""

    TUNABLE: ClassVar[Declared] = {"steps": Tunable(0, 7, whole=True)}

    def __init__(self, steps: int = 3) -> None:
        """steps: draft steps at the start; a bracket without it begins at its middle count."""
        check_whole("sglang-ema", 0, steps=steps)
        self.name = "sglang-ema" if steps == 3 else f"sglang-ema({steps})"
        self.first_steps = steps
        self.brackets: list[Average] = []
        self._planned: Average | None = None

    def reset(self, limits: Limits) -> None:
        """Averages begin at one draft less than the first steps, which is neutral."""
        self.brackets = []
        for bracket in BRACKETS:
            middle = bracket.steps[len(bracket.steps) // 2]
            first = self.first_steps if self.first_steps in bracket.steps else middle
            self.brackets.append(Average(bracket.steps, bracket.down, first, first - 1.0))
        self._planned = None

    def plan(self, view: View) -> Plan:
        """A chain for everybody, as long as the batch's bracket says."""
        batch = int(view.active.sum())
        at = bisect_right([bracket.batch for bracket in BRACKETS], batch) - 1
        self._planned = self.brackets[max(at, 0)]
        depth = self._planned.current
        return uniform_plan(view.limits, depth, width=1, nodes=max(depth, 1))

    def observe(self, outcome: Outcome) -> None:
        """What the batch accepted goes into the bracket that planned it."""
        if self._planned is not None and outcome.ran.any():
            drafts = outcome.accepted_length[outcome.ran] - 1
            self._planned.update(float(drafts.mean()))
