"""What a figure is: a name, a bar, how it is measured, and what came out.

It knows no engine. The list of figures stands in spine.py, their results on disk in results.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import UserError

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "≥": operator.ge,
    "≤": operator.le,
    "<": operator.lt,
}


class MissingHardwareError(Exception):
    """The machine lacks what the figure is about: the one excuse for not measuring it."""


class UnmeasuredError(UserError):
    """The figure could not be measured for any other reason; never excused."""


@dataclass(frozen=True)
class Bar:
    """The value that a figure must reach, and a second way to reach it in words."""

    sign: str
    value: float
    unit: str = ""
    alternative: str = ""

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        other = f", or {self.alternative}" if self.alternative else ""
        return f"{self.sign} {self.value:g}{unit}{other}"

    def holds(self, value: float) -> bool:
        """Whether `value` reaches the bar; what is not a number never does."""
        return math.isfinite(value) and SIGNS[self.sign](value, self.value)


@dataclass(frozen=True)
class Result:
    """What a measurement brought. `raw` holds the figures beside the ratios, as plain data."""

    value: float
    text: str
    note: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)
    broken: str = ""
    """Why the figure does not hold whatever its value, for example a failed test."""
    meets_alternative: bool = False
    """Whether the bar's alternative is reached."""


@dataclass(frozen=True)
class Figure:
    """One line of the table. `measure` is `module:function`, imported when it is asked for."""

    name: str
    title: str
    bar: Bar | None
    measure: str
    argument: str = ""
    """What the function is given after the bench, if anything."""


@dataclass(frozen=True)
class Row:
    """A figure as measured, or why it was not; what the JSON file holds of it."""

    name: str
    title: str
    value: str
    bar: str
    status: str
    """holds, missed, reported (no bar), unmeasured or excused (missing hardware)."""
    note: str = ""
    number: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    quick: bool = False
    run: str = ""
    """Start of the run that measured it, a key of the file's `runs`."""

    @property
    def passes(self) -> bool:
        """Whether the row is no reason to exit with 1."""
        return self.status in ("holds", "reported", "excused")


def judged(figure: Figure, result: Result) -> Row:
    """The row of a figure that was measured."""
    bar, value = figure.bar, result.value
    if result.broken:
        status = "missed"
    elif bar is None:
        status = "reported"
    else:
        status = "holds" if bar.holds(value) or result.meets_alternative else "missed"
    return Row(
        name=figure.name,
        title=figure.title,
        value=result.text,
        bar=_bar_text(figure),
        status=status,
        note=". ".join(part for part in (result.broken, result.note) if part),
        number=value if math.isfinite(value) else None,
        raw=result.raw,
    )


def unmeasured(figure: Figure, reason: str, excused: bool = False) -> Row:
    """The row of a figure that was not measured."""
    status = "excused" if excused else "unmeasured"
    return Row(figure.name, figure.title, "–", _bar_text(figure), status, reason)


def _bar_text(figure: Figure) -> str:
    return "–" if figure.bar is None else str(figure.bar)
