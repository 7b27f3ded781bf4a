"""What goes wrong while requests are served, on a schedule: data, and one table to read it from.

A disturbance is a kind, a time and a value. `Disturbances` holds all of one episode as a table of
change points × kinds, linear in between, from which all who act on them read the same numbers:
`episode` (arrival rate, mix, burst), `build` (lengths), `drafter_schedule` (a live drafter),
`engine.loop` (memory) and `engine.viewing` (the power cap). `disturbance_kernel` reads many
replicas at once; `unapplied` says what a server leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats
from engine.workload.checks import checked_range, nearest, need_within

Combine = Callable[[float, float], float]


class Kind(NamedTuple):
    """What a value of this kind means, which are possible, and what several at once make."""

    neutral: float
    low: float
    high: float
    combine: Combine
    meaning: str


def _product(a: float, b: float) -> float:
    return a * b


KINDS = {
    "arrival_rate": Kind(1.0, 0.0, 100.0, _product, "factor on the arrival rate"),
    "burst": Kind(1.0, 0.01, 100.0, _product, "factor on the cv of the gaps"),
    "prompt_length": Kind(1.0, 0.01, 100.0, _product, "factor on prompt tokens"),
    "output_length": Kind(1.0, 0.01, 100.0, _product, "factor on output tokens"),
    "acceptance": Kind(1.0, 0.0, 2.0, _product, "factor on the probability of acceptance"),
    "draft_time": Kind(1.0, 0.01, 100.0, _product, "factor on the time of a draft step"),
    "memory": Kind(0.0, 0.0, 0.99, max, "share of the KV pages withdrawn"),
    "power_cap": Kind(1.0, 0.01, 1.0, min, "cap as a share of the device's highest power"),
    "mix": Kind(1.0, 0.0, 1000.0, _product, "factor on the weight of the class `slo_class`"),
}
COLUMNS = tuple(kind for kind in KINDS if kind != "mix")
"""Kinds in the order of the table's columns; behind them the mix has a column for each class."""
NEUTRAL = np.array([KINDS[kind].neutral for kind in COLUMNS])
ACCEPTANCE, DRAFT_TIME = COLUMNS.index("acceptance"), COLUMNS.index("draft_time")
MEMORY, POWER_CAP = COLUMNS.index("memory"), COLUMNS.index("power_cap")
LATEST_S = 1e12


@dataclass(frozen=True)
class Disturbance:
    """One kind at one value from `start_s` until `end_s`, on the engine's clock."""

    kind: str
    start_s: float
    end_s: float
    value: float
    ramp_s: float = 0.0
    """It takes so long to come, and as long to go, both inside [start_s, end_s)."""
    slo_class: str = ""
    """For the kind `mix`: whose weight."""

    def __post_init__(self) -> None:
        where = _checked_kind(self.kind, self.slo_class)
        need_within(f"{where}: start_s", self.start_s, 0.0, LATEST_S)
        if not isinstance(self.end_s, (int, float)) or not self.start_s < self.end_s:
            raise UserError(
                f"{where} from {self.start_s!r} to {self.end_s!r} s; expected an end after the "
                "start, or inf"
            )
        kind = KINDS[self.kind]
        need_within(f"{where}: value, a {kind.meaning},", self.value, kind.low, kind.high)
        need_within(f"{where}: ramp_s", self.ramp_s, 0.0, (self.end_s - self.start_s) / 2)

    def at(self, time_s: float) -> float:
        """The value at a time from start to end, both included."""
        neutral = KINDS[self.kind].neutral
        if self.ramp_s == 0:
            return float(self.value)
        share = min(1.0, (time_s - self.start_s) / self.ramp_s, (self.end_s - time_s) / self.ramp_s)
        return neutral + share * (self.value - neutral)

    @property
    def edges_s(self) -> tuple[float, ...]:
        """Where its slope changes."""
        return (
            self.start_s,
            self.start_s + self.ramp_s,
            self.end_s - self.ramp_s,
            self.end_s,
        )


@dataclass(frozen=True)
class DrawnDisturbance:
    """A disturbance whose time and value are drawn uniformly for every episode.

    A range is (low, high); a single number stands for both.
    """

    kind: str
    start_s: tuple[float, float]
    lasts_s: tuple[float, float]
    value: tuple[float, float]
    ramp_s: float = 0.0
    """Shortened to half of a shorter disturbance."""
    slo_class: str = ""
    probability: float = 1.0
    """That an episode has it."""

    def __post_init__(self) -> None:
        where = "drawn " + _checked_kind(self.kind, self.slo_class)
        kind = KINDS[self.kind]
        bounds = {
            "start_s": (0.0, LATEST_S),
            "lasts_s": (1e-3, LATEST_S),
            "value": (kind.low, kind.high),
        }
        for name, (low, high) in bounds.items():
            label = f"{where}: {name}"
            object.__setattr__(self, name, checked_range(label, getattr(self, name), low, high))
        need_within(f"{where}: ramp_s", self.ramp_s, 0.0, LATEST_S)
        need_within(f"{where}: probability", self.probability, 0.0, 1.0)

    def draw(self, generator: np.random.Generator) -> Disturbance | None:
        """This episode's; None where it has none. Takes four numbers from the generator always."""
        is_there = generator.random() < self.probability
        start_s, lasts_s, value = (
            float(generator.uniform(*bounds)) for bounds in (self.start_s, self.lasts_s, self.value)
        )
        if not is_there:
            return None
        end_s = start_s + lasts_s
        ramp_s = min(self.ramp_s, (end_s - start_s) / 2)
        return Disturbance(self.kind, start_s, end_s, value, ramp_s, self.slo_class)


class Disturbances:
    """All disturbances of one episode, as a table that is linear between its change points.

    Factors that overlap multiply, of shares withdrawn the largest counts, of caps the lowest; where
    ramps of one kind overlap, their product is taken at the change points and joined linearly.
    """

    def __init__(self, of: Iterable[Disturbance] = ()) -> None:
        self.of = tuple(of)
        classes = sorted({d.slo_class for d in self.of if d.kind == "mix"})
        self.columns = COLUMNS + tuple(f"mix {name}" for name in classes)
        edges = {0.0}.union(*(d.edges_s for d in self.of))
        self.points_s: Floats = np.array(sorted(e for e in edges if math.isfinite(e)))  # [P]
        """Sorted change points, the first at 0."""
        shape = len(self.points_s), len(self.columns)
        self.level: Floats = np.empty(shape)  # [P, K] at the change point
        self.slope: Floats = np.zeros(shape)  # [P, K] per second from there on
        ends_s = [*self.points_s[1:].tolist(), math.inf]
        for i, (begin_s, end_s) in enumerate(zip(self.points_s.tolist(), ends_s, strict=True)):
            for k, column in enumerate(self.columns):
                first, last = self._piece(column, begin_s, end_s)
                self.level[i, k] = first
                if last != first:
                    self.slope[i, k] = (last - first) / (end_s - begin_s)

    def value(self, kind: str, time_s: float, slo_class: str = "") -> float:
        """The value of a kind at a time; of `mix`, the factor on the weight of `slo_class`."""
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}; {nearest(kind, KINDS)}")
        column = f"mix {slo_class}" if kind == "mix" else kind
        if column not in self.columns:
            return KINDS[kind].neutral
        k = self.columns.index(column)
        i = max(int(np.searchsorted(self.points_s, time_s, side="right")) - 1, 0)
        past_s = max(time_s - self.points_s[i], 0.0)
        return float(self.level[i, k] + self.slope[i, k] * past_s)

    def values(self, times_s: Floats) -> Floats:
        """[..., K] the values of all COLUMNS at times [...]."""
        i = np.maximum(np.searchsorted(self.points_s, times_s, side="right") - 1, 0)
        past_s = np.maximum(times_s - self.points_s[i], 0.0)[..., None]
        k = len(COLUMNS)
        return self.level[i, :k] + self.slope[i, :k] * past_s

    def has(self, *kinds: str) -> bool:
        """Whether any of these kinds occurs."""
        return any(d.kind in kinds for d in self.of)

    def _piece(self, column: str, begin_s: float, end_s: float) -> tuple[float, float]:
        """A column's values at both ends of a piece, as seen from inside it."""
        kind, _, slo_class = column.partition(" ")
        first = last = KINDS[kind].neutral
        combine = KINDS[kind].combine
        for d in self.of:
            if d.kind != kind or d.slo_class != slo_class:
                continue
            if d.start_s <= begin_s and end_s <= d.end_s:
                first = combine(first, d.at(begin_s))
                last = combine(last, d.at(min(end_s, LATEST_S)))
        return first, last


class Schedule(NamedTuple):
    """The tables of R replicas, padded to one number of change points; for kernels."""

    points_s: Floats  # [R, P] sorted, inf where a replica has no more
    level: Floats  # [R, P, K]
    slope: Floats  # [R, P, K]


def stacked(episodes: Sequence[Disturbances]) -> Schedule:
    """One episode a replica; columns are COLUMNS, the mix is left to the arrivals."""
    most = max(len(episode.points_s) for episode in episodes)
    shape = len(episodes), most, len(COLUMNS)
    points_s = np.full(shape[:2], np.inf)
    level = np.broadcast_to(NEUTRAL, shape).copy()
    slope = np.zeros(shape)
    for r, episode in enumerate(episodes):
        count = len(episode.points_s)
        points_s[r, :count] = episode.points_s
        level[r, :count] = episode.level[:, : len(COLUMNS)]
        slope[r, :count] = episode.slope[:, : len(COLUMNS)]
    return Schedule(points_s, level, slope)


def _checked_kind(kind: object, slo_class: object) -> str:
    """How the disturbance is called in a sentence; raises UserError for a kind that is none."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"disturbance: unknown kind {kind!r}; {nearest(str(kind), KINDS)}")
    if not isinstance(slo_class, str) or (kind == "mix") != bool(slo_class):
        raise UserError(
            f"disturbance of {kind}: slo_class is {slo_class!r}; expected a class name with the "
            "kind mix and none with others"
        )
    return f"disturbance of {kind}"
