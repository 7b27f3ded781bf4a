"""What a controller from replay loses on the live engine, and what learning there won back.

Two comparisons over the same seeds, of the same requests, are set side by side: replay and live.
Serving them is the caller's; a difference is said only where its interval excludes zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.columns import JUDGED
from eval.runner import Comparison, Run
from eval.statistics import Interval, mean_interval, paired_difference, several
from eval.writing import markdown_table, plain, with_interval

if TYPE_CHECKING:
    from rich.table import Table

LEVEL = 0.95
COLUMNS = ("on replay", "on live", "live − replay")
UNITS: dict[str, tuple[float, str]] = {"attainment": (100.0, " points"), "goodput": (1.0, " tok/s")}
"""A figure's factor and unit as it is written."""
RANGES = {"attainment": (0.0, 1.0), "goodput": (0.0, math.inf)}
"""Beyond which a figure cannot lie, whatever a few seeds' Student's t allows."""
TITLES = {"attainment": "attainment %", "goodput": "goodput tok/s"}


@dataclass(frozen=True)
class Gap:
    """One figure of one controller on both, over the same seeds, and live less replay."""

    controller: str
    figure: str
    replay: Interval
    live: Interval
    gap: Interval


@dataclass(frozen=True)
class Gain:
    """One figure on live, fine-tuned less before, over the same seeds."""

    figure: str
    gain: Interval


@dataclass(frozen=True)
class Transfer:
    """What was lost on the way, before and after fine-tuning, and what fine-tuning won."""

    seeds: tuple[int, ...]
    gaps: tuple[Gap, ...]
    gains: tuple[Gain, ...]

    @property
    def verdict(self) -> str:
        """One sentence a controller, one for fine-tuning."""
        names = dict.fromkeys(gap.controller for gap in self.gaps)
        sentences = [
            f"From replay to live, {name}: "
            + "; ".join(_told(g.figure, g.gap) for g in self.gaps if g.controller == name)
            for name in names
        ]
        gains = "; ".join(_told(gain.figure, gain.gain) for gain in self.gains)
        return f"{'. '.join(sentences)}. By fine-tuning, on live: {gains}."


def transfer_of(
    replay: Comparison, live: Comparison, before: str, after: str, rng: np.random.Generator
) -> Transfer:
    """Both comparisons hold the controllers `before` and `after`, over the same seeds.

    Intervals of differences hold together at 95 % (Bonferroni). Raises ValueError for other seeds.
    """
    if replay.seeds != live.seeds:
        raise ValueError(f"seeds {replay.seeds} on replay and {live.seeds} on live: expected one")
    level = several(LEVEL, 3 * len(JUDGED))

    def gap(controller: str, name: str, figure: Callable[[Run], float]) -> Gap:
        modelled, here = replay.values(controller, figure), live.values(controller, figure)
        _, most = RANGES[name]
        return Gap(
            controller,
            name,
            mean_interval(modelled, rng, LEVEL).within(*RANGES[name]),
            mean_interval(here, rng, LEVEL).within(*RANGES[name]),
            paired_difference(here, modelled, rng, level).within(-most, most),
        )

    gaps = [gap(who, name, figure) for who in (before, after) for name, figure in JUDGED]
    gains = [
        Gain(name, paired_difference(live.values(after, f), live.values(before, f), rng, level))
        for name, f in JUDGED
    ]
    return Transfer(replay.seeds, tuple(gaps), tuple(gains))


def as_rich(transfer: Transfer) -> Table:
    """The table for a terminal."""
    from rich import box
    from rich.table import Table

    table = Table(title=_title(transfer), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for title in COLUMNS:
        table.add_column(title, justify="right")
    for row in _rows(transfer):
        table.add_row(*row)
    return table


def as_markdown(transfer: Transfer) -> str:
    """Table and verdict."""
    rows = markdown_table(("", *COLUMNS), _rows(transfer))
    return "\n".join([f"**{_title(transfer)}**", "", *rows, "", transfer.verdict]) + "\n"


def as_json(transfer: Transfer) -> dict[str, Any]:
    """The same as plain data; shares from 0 to 1, what is not finite becomes null."""
    found: dict[str, Any] = plain(dataclasses.asdict(transfer))
    return found | {"level": LEVEL, "verdict": transfer.verdict}


def _title(transfer: Transfer) -> str:
    return (
        f"what was lost from replay to live, {len(transfer.seeds)} paired seeds; the differences' "
        "intervals hold together at 95 %"
    )


def _rows(transfer: Transfer) -> Iterator[Sequence[str]]:
    for of in transfer.gaps:
        factor, _ = UNITS[of.figure]
        write = with_interval(1)
        intervals = (_times(interval, factor) for interval in (of.replay, of.live, of.gap))
        yield f"{of.controller}, {TITLES[of.figure]}", *map(write, intervals)


def _told(figure: str, interval: Interval) -> str:
    """`attainment fell by 9.0 points [4.2, 14.1]`, or that no difference is shown."""
    factor, unit = UNITS[figure]
    scaled = _times(interval, factor)
    if not interval.seeds:  # no request of these seeds counted on both
        return f"{figure}: nothing to compare"
    if not scaled.excludes_zero:
        return f"{figure}: no difference shown ({_with_unit(scaled, unit)})"
    if scaled.mean < 0:
        scaled = dataclasses.replace(scaled, mean=-scaled.mean, low=-scaled.high, high=-scaled.low)
        return f"{figure} fell by {_with_unit(scaled, unit)}"
    return f"{figure} rose by {_with_unit(scaled, unit)}"


def _with_unit(interval: Interval, unit: str) -> str:
    mean, bounds, rest = with_interval(1)(interval).partition(" ")
    return f"{mean}{unit}{bounds}{rest}"


def _times(interval: Interval, factor: float) -> Interval:
    return dataclasses.replace(
        interval,
        mean=factor * interval.mean, low=factor * interval.low, high=factor * interval.high,
    )  # fmt: skip
