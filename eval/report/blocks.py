"""What a section of the report is made of: words, tables with intervals, charts and code.

Plain data between those who read results and the page that shows them; it knows neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from eval.statistics import Interval


@dataclass(frozen=True)
class Figure:
    """A value and where it may lie; nan where it is not known, infinite where nothing bounds it."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def read(cls, data: Any) -> Figure:
        """Of a summary: `{"value" or "mean", "low", "high"}`, a bare number, or nothing."""
        if isinstance(data, dict):
            value = data["value"] if "value" in data else data.get("mean")
            return cls(*map(_number, (value, data.get("low"), data.get("high"))))
        return cls(_number(data))

    def times(self, factor: float) -> Figure:
        """In another unit."""
        return Figure(self.value * factor, self.low * factor, self.high * factor)

    def within(self, least: float, most: float) -> Figure:
        """With an interval that reaches no further than the figure itself can go."""
        kept = Interval(self.value, self.low, self.high, 0).within(least, most)
        return Figure(kept.mean, kept.low, kept.high)

    @property
    def is_known(self) -> bool:
        """Whether there is a value to show."""
        return math.isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def straddles_zero(self) -> bool:
        """Whether the sign is not shown; so it is where there is no interval."""
        return not self.has_interval or self.low <= 0 <= self.high


@dataclass(frozen=True)
class Cell:
    """A cell of a table: words or a figure, with the interval drawn where `strip` has a place."""

    text: str
    strip: str = ""
    """SVG of the interval, made by `eval.report.strips`; shown before the words."""
    tone: str = ""
    """`good`, `bad` or `quiet`, never all that says so; `several`: its names may wrap."""
    key: str = ""
    """The controller that the cell names, for its colour."""
    is_figure: bool = True


@dataclass(frozen=True)
class Table:
    """A table that scrolls in a box of its own where the page is too narrow."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    note: str = ""
    kind: ClassVar[str] = "table"

    @property
    def sample(self) -> Sequence[Cell]:
        """A row by which the headings are aligned; a row of one cell is a heading itself."""
        whole = (row for row in self.rows if len(row) == len(self.head))
        return next(whole, [Cell("")] * len(self.head))


@dataclass(frozen=True)
class Chart:
    """A Plotly figure as plain data; `label` says in words what it shows, for who cannot see it."""

    title: str
    data: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    label: str
    height: int = 300
    upward: str = ""
    """What the vertical axis measures and in which unit; stands above it, where it reads level."""
    note: str = ""
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Panels:
    """Charts side by side where there is room, with one legend of controllers for all.

    Without charts it is the legend alone, of what follows.
    """

    charts: Sequence[Chart]
    keys: Sequence[str] = ()
    least_px: int = 320
    """Width under which two charts no longer stand beside each other."""
    title: str = ""
    kind: ClassVar[str] = "panels"


@dataclass(frozen=True)
class Words:
    """A paragraph, or a list of them."""

    lines: Sequence[str]
    is_list: bool = False
    tone: str = ""
    kind: ClassVar[str] = "words"


@dataclass(frozen=True)
class Code:
    """Lines to type, or a listing."""

    lines: Sequence[str]
    caption: str = ""
    kind: ClassVar[str] = "code"


Block: TypeAlias = "Table | Panels | Words | Code"


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own; `lead` says first what follows shows."""

    ident: str
    title: str
    short: str
    """The title in the bar at the top."""
    lead: str = ""
    blocks: Sequence[Block] = field(default_factory=tuple)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
