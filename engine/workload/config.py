"""What a workload is: how long, how fast, which classes, how long the texts, what goes wrong.

Checks what can be checked without a deployment. Class names, capacity and prompts are checked
where they meet the workload (`arrivals`, `build`); its TOML form is `tables`', named workloads
stand in `presets`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, get_args

from engine.errors import UserError
from engine.workload.checks import checked_mix, is_number, nearest, need_positive
from engine.workload.disturbances import Disturbance, DrawnDisturbance
from engine.workload.regimes import Peak, Regime, Shifts
from engine.workload.renewal import CV_RANGE, Process
from engine.workload.trace_use import TraceUse

MAX_SPANS = 10_000  # regimes in one workload; more is a slip in the units
SPEEDS = ("load", "rate_rps", "regimes", "shifts")


@dataclass(frozen=True)
class WorkloadConfig:
    """Everything that decides a list of requests but the prompts, the capacity and the seed.

    Exactly one of `load`, `rate_rps`, `regimes` and `shifts` says how fast requests arrive; a
    `trace` keeps its own speed unless `load` or `rate_rps` gives it another.
    """

    name: str = "custom"
    duration_s: float = 120.0
    """Arrivals stop here. Given regimes may last longer (they are cut), not shorter; inf, with a
    trace: when it ends."""
    load: float | None = None
    """Arrival rate in multiples of capacity; with peaks or a trace the mean rate."""
    rate_rps: float | None = None
    """Arrival rate in requests per second, likewise."""
    mix: dict[str, float] = field(default_factory=dict)
    """Weights by class name; empty is every class alike. A trace with classes needs none."""
    cv: float = 1.0
    """Coefficient of variation of the gaps between arrivals: 1 is Poisson, more is bursty."""
    max_tokens: int = 96
    """A request may emit between half of this and all of it, drawn uniformly; a trace's lengths are
    clipped to it."""
    prompt_tokens: int = 512
    """Longest prompt; a trace's are clipped to it."""
    truncate: bool = False
    """Cut longer prompts instead of refusing them."""
    regimes: tuple[Regime, ...] = ()
    shifts: Shifts | None = None
    process: Process = "gamma"
    """Distribution of the gaps: gamma, weibull (longer tails), or poisson, where cv is 1."""
    peaks: dict[str, Peak] = field(default_factory=dict)
    """Classes that peak at different times, in place of a mix."""
    trace: TraceUse | None = None
    """Recorded arrivals in place of drawn ones."""
    disturbances: tuple[Disturbance, ...] = ()
    drawn_disturbances: tuple[DrawnDisturbance, ...] = ()
    """Drawn anew for every episode."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"workload: name is {self.name!r}; expected a text")
        where = f"workload {self.name!r}"
        need_positive(f"{where}: duration_s", self.duration_s, endless=self.trace is not None)
        object.__setattr__(self, "mix", checked_mix(f"{where}: mix", self.mix))
        for name, kind in (
            ("regimes", Regime),
            ("disturbances", Disturbance),
            ("drawn_disturbances", DrawnDisturbance),
        ):
            object.__setattr__(self, name, _tuple_of(f"{where}: {name}", getattr(self, name), kind))
        if self.shifts is not None and not isinstance(self.shifts, Shifts):
            raise UserError(f"{where}: shifts is {self.shifts!r}; expected Shifts")
        if self.trace is not None and not isinstance(self.trace, TraceUse):
            raise UserError(f"{where}: trace is {self.trace!r}; expected TraceUse")
        for name in ("load", "rate_rps"):
            if getattr(self, name) is not None:
                need_positive(f"{where}: {name}", getattr(self, name))
        if not is_number(self.cv) or not CV_RANGE[0] <= self.cv <= CV_RANGE[1]:
            raise UserError(f"{where}: cv is {self.cv!r}; expected a number in {list(CV_RANGE)}")
        for name in ("max_tokens", "prompt_tokens"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise UserError(f"{where}: {name} is {value!r}; expected a whole number from 1")
        if not isinstance(self.truncate, bool):
            raise UserError(f"{where}: truncate is {self.truncate!r}; expected true or false")
        self._check_process(where)
        self._check_peaks(where)
        self._check_trace(where)
        self._check_speed(where)

    def _check_process(self, where: str) -> None:
        known = get_args(Process)
        if self.process not in known:
            raise UserError(
                f"{where}: process is {self.process!r}; {nearest(str(self.process), known)}"
            )
        if self.process == "poisson" and self.cv != 1:
            raise UserError(
                f"{where}: a poisson process with cv = {self.cv:g}; expected cv = 1, or process = "
                "'gamma' or 'weibull'"
            )

    def _check_peaks(self, where: str) -> None:
        peaks = self.peaks
        if not isinstance(peaks, Mapping) or not all(isinstance(p, Peak) for p in peaks.values()):
            raise UserError(f"{where}: peaks is {peaks!r}; expected a Peak by class name")
        object.__setattr__(self, "peaks", dict(peaks))
        if peaks and self.mix:
            raise UserError(
                f"{where}: both mix and peaks are given; the peaks' heights are the mix, so leave "
                "mix out"
            )
        if peaks and (self.regimes or self.shifts is not None or self.trace is not None):
            raise UserError(
                f"{where}: peaks need load or rate_rps, the mean rate, and nothing else"
            )

    def _check_trace(self, where: str) -> None:
        if self.trace is None:
            return
        if self.cv != 1 or self.process != "gamma":
            raise UserError(
                f"{where}: cv and process say how arrivals are drawn, but its trace has its own; "
                "leave them out"
            )
        kinds = {d.kind for d in self.disturbances} | {d.kind for d in self.drawn_disturbances}
        for kind in ("mix", "burst"):
            if kind in kinds:
                raise UserError(
                    f"{where}: a disturbance of {kind} needs drawn arrivals, but a trace has its "
                    "own; leave out one of the two"
                )

    def _check_speed(self, where: str) -> None:
        given = [n for n in SPEEDS if getattr(self, n) not in (None, ())]
        if self.trace is not None and not given:
            return
        if self.trace is not None and given not in (["load"], ["rate_rps"]):
            raise UserError(
                f"{where}: its speed is given by a trace and {' and '.join(given)}; expected at "
                "most one of load and rate_rps beside a trace"
            )
        if len(given) != 1:
            raise UserError(
                f"{where}: its speed is given by {' and '.join(given) or 'nothing'}; "
                "expected exactly one of load, rate_rps, regimes and shifts, or a trace"
            )
        total_s = math.fsum(regime.duration_s for regime in self.regimes)
        if self.regimes and total_s < self.duration_s:
            raise UserError(
                f"{where}: its regimes last {total_s:g} s but duration_s is {self.duration_s:g}; "
                "lower duration_s or lengthen the regimes"
            )
        if len(self.regimes) > MAX_SPANS or (
            self.shifts is not None and self.duration_s > MAX_SPANS * self.shifts.duration_s[0]
        ):
            raise UserError(
                f"{where}: it may hold more than {MAX_SPANS} regimes; lengthen the regimes' "
                "duration_s or shorten the workload's"
            )


def _tuple_of(label: str, values: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, kind) for v in values):
        raise UserError(f"{label} is {values!r}; expected a tuple of {kind.__name__}")
    return tuple(values)
