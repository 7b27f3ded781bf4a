"""Twins of `engine.kernels.steady_chains`: what is known of one request, as an object."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.twins.variance_ratio import variance_ratio


def scale(divergence: float, steepness: float) -> float:
    """SF; what no floating-point number holds is as good as very much."""
    return math.expm1(min(steepness * divergence, 700.0))


def length(instability: float, shortest: int, longest: int) -> int:
    """SL, rounded up, from SF · WVIR and the two bounds."""
    kept = min(max(1.0 - instability, 0.0), 1.0)
    return shortest + math.ceil(kept * (longest - shortest))


@dataclass
class Course:
    """What is known of a request."""

    steps: int
    window: int
    told: list[float] = field(default_factory=list)
    """All divergences."""
    drafted: int = 0
    most_accepted: int = 0
    seen: list[float] = field(default_factory=list)
    """Divergences of the calibration."""
    longest: int | None = None

    def note(
        self,
        divergence: float,
        drafted: int,
        accepted: int,
        calibration: int,
        stretch: float,
        most: int,
    ) -> None:
        """An iteration; a divergence of NaN is none."""
        fresh = [] if math.isnan(divergence) else [divergence]
        if drafted == 0:
            return
        self.told += fresh
        if self.longest is not None:
            return
        self.seen += fresh
        self.drafted += drafted
        self.most_accepted = max(self.most_accepted, accepted)
        if accepted >= self.steps:
            self.steps = min(2 * self.steps, most)
        if self.drafted >= calibration:
            largest = max(self.seen, default=0.0)
            share = sum(self.seen) / len(self.seen) / largest if largest > 0 else 0.0
            self.longest = round(self.most_accepted * (1.0 + stretch * share))

    def chain(self, shortest: int, most: int, steepness: float, short: int, decay: float) -> int:
        """Draft steps, not capped."""
        if self.longest is None:
            return self.steps
        history = [0.0] * self.window
        for i, nats in enumerate(self.told):
            history[i % self.window] = nats
        ratio = variance_ratio(history, len(self.told), short, decay)
        last = self.told[-1] if self.told else 0.0
        longest = min(max(self.longest, shortest), most)
        return length(scale(last, steepness) * ratio, shortest, longest)
