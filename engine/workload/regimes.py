"""How the load of a workload moves: stated regimes, regimes drawn by episode, peaks by class.

Only what they are; `arrivals` turns them into spans on the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import UserError
from engine.workload.checks import checked_mix, checked_range, need_positive, need_within


@dataclass(frozen=True)
class Regime:
    """A stretch of time with one load and one mix."""

    duration_s: float
    load: float
    """Arrival rate in multiples of capacity."""
    mix: dict[str, float] = field(default_factory=dict)
    """Weights by class name; empty takes the workload's."""
    acceptance: float = 1.0
    """Factor on the probability that a draft is accepted."""
    draft_time: float = 1.0
    """Factor on the time of a draft step."""

    def __post_init__(self) -> None:
        need_positive("a regime's duration_s", self.duration_s)
        need_positive("a regime's load", self.load)
        object.__setattr__(self, "mix", checked_mix("a regime's mix", self.mix))
        need_within("a regime's acceptance", self.acceptance, 0.0, 2.0)
        need_within("a regime's draft_time", self.draft_time, 0.01, 100.0)


@dataclass(frozen=True)
class Shifts:
    """Regimes that are drawn anew for every episode: duration and load uniform, mix Dirichlet.

    The drift of acceptance and of draft time is off by default; the preset `shifting` has it.
    """

    duration_s: tuple[float, float] = (30.0, 90.0)
    load: tuple[float, float] = (0.5, 1.2)
    concentration: float = 1.0
    """Of the Dirichlet distribution, per class; 1 makes every mix equally likely."""
    acceptance: tuple[float, float] = (1.0, 1.0)
    """Factor on the probability that a draft is accepted, uniform."""
    slow_draft: float = 1.0
    """Factor on the time of a draft step in a regime that has slow drafts."""
    slow_probability: float = 0.0
    """That a regime has them."""

    def __post_init__(self) -> None:
        for name in ("duration_s", "load"):
            value = getattr(self, name)
            if not isinstance(value, (list, tuple)) or len(value) != 2:
                raise UserError(f"shifts: {name} is {value!r}; expected two numbers, low and high")
            for bound in value:
                need_positive(f"shifts: {name}", bound)
            if value[0] > value[1]:
                raise UserError(f"shifts: {name} is {value!r}; expected low and then high")
            object.__setattr__(self, name, tuple(value))
        need_positive("shifts: concentration", self.concentration)
        if self.concentration < 0.01:
            raise UserError(
                f"shifts: concentration is {self.concentration}; expected at least 0.01"
            )
        acceptance = checked_range("shifts: acceptance", self.acceptance, 0.0, 2.0)
        object.__setattr__(self, "acceptance", acceptance)
        need_within("shifts: slow_draft", self.slow_draft, 0.01, 100.0)
        need_within("shifts: slow_probability", self.slow_probability, 0.0, 1.0)


@dataclass(frozen=True)
class Peak:
    """A class whose arrival rate rises and falls once, as a Gaussian over the workload's time."""

    at: float
    """Where it peaks, as a share of the workload's duration."""
    width: float
    """Standard deviation, as a share of the duration."""
    height: float = 1.0
    """Rate at the peak in relation to other classes'."""

    def __post_init__(self) -> None:
        need_within("a peak's at", self.at, 0.0, 1.0)
        need_within("a peak's width", self.width, 0.001, 100.0)
        need_positive("a peak's height", self.height)
