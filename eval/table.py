"""The table at the end: controllers by figures with intervals, and the verdict in words.

`build` decides what is said; `as_rich`, `as_markdown` and `as_json` say the same in three forms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.classes import ClassTable
from eval.runner import Comparison, Run
from eval.statistics import Interval, mean_interval, paired_difference, several, verdict

if TYPE_CHECKING:
    from rich.table import Table

LEVEL = 0.95


@dataclass(frozen=True)
class Column:
    """A figure of a run and how it is written."""

    title: str
    figure: Callable[[Run], float]
    write: Callable[[Interval], str]
    most: float = math.inf
    """Natural upper bound; all figures are at least 0. No interval reaches beyond."""


@dataclass(frozen=True)
class Difference:
    """Subject minus other on one metric, over the same seeds."""

    subject: str
    other: str
    metric: str
    interval: Interval
    says: str


@dataclass(frozen=True)
class Report:
    """What the table says: `cells` [controllers][columns], the differences and the verdict."""

    title: str
    columns: tuple[str, ...]
    controllers: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    intervals: tuple[tuple[Interval, ...], ...]
    differences: tuple[Difference, ...]
    verdict: str
    notes: tuple[str, ...]
    comparison: Comparison


# What the verdict is about, both better when higher.
JUDGED: tuple[tuple[str, Callable[[Run], float]], ...] = (
    ("attainment", lambda run: run.metrics.attainment),
    ("goodput", lambda run: run.metrics.goodput_tps),
)


def columns(classes: ClassTable) -> tuple[Column, ...]:
    """The table's columns; the TPOT column is of the class with the tightest objective."""
    tightest = min(classes.classes, key=lambda c: c.tpot_ratio).name
    return (
        Column("attainment %", lambda r: 100 * r.metrics.attainment, _with_interval(0), most=100),
        Column("goodput tok/s", lambda r: r.metrics.goodput_tps, _with_interval(1)),
        Column(
            f"p95 TPOT, {tightest}",
            lambda r: r.metrics.by_class[tightest].tpot_ratio.p95,
            lambda i: _number(i.mean, 2, " ×"),
        ),
        Column("tokens/iteration", lambda r: r.tokens_per_iteration, _with_interval(2)),
        Column("J/token", lambda r: r.joules_per_token, lambda i: _number(i.mean, 2)),
        Column("decision", lambda r: r.decision_s * 1e6, lambda i: _number(i.mean, 0, " µs")),
    )


def build(
    comparison: Comparison,
    classes: ClassTable,
    title: str,
    subject: str,
    rng: np.random.Generator,
) -> Report:
    """The report of `comparison`; the verdict sets `subject` against each other controller.

    The verdict's intervals hold together at 95 % (Bonferroni over all that it compares).
    """
    names = tuple(comparison.runs)
    shown = columns(classes)
    intervals = tuple(
        tuple(_within(c, mean_interval(comparison.values(n, c.figure), rng, LEVEL)) for c in shown)
        for n in names
    )
    others = [name for name in names if name != subject]
    level = several(LEVEL, len(others) * len(JUDGED))
    differences = []
    for other in others:
        for metric, figure in JUDGED:
            ours, theirs = comparison.values(subject, figure), comparison.values(other, figure)
            interval = paired_difference(ours, theirs, rng, level)
            says = verdict(subject, other, interval, metric, higher_is_better=True)
            differences.append(Difference(subject, other, metric, interval, says))
    runs = [run for rows in comparison.runs.values() for run in rows]
    return Report(
        title=f"{title}, {len(comparison.seeds)} paired seeds",
        columns=tuple(c.title for c in shown),
        controllers=names,
        cells=tuple(
            tuple(c.write(i) for c, i in zip(shown, row, strict=True)) for row in intervals
        ),
        intervals=intervals,
        differences=tuple(differences),
        verdict=in_words(subject, others, differences),
        notes=tuple(_notes(comparison, runs)),
        comparison=comparison,
    )


def in_words(subject: str, others: Iterable[str], differences: Iterable[Difference]) -> str:
    """One sentence: whom the subject beats and on what, who beats it, and what is not shown."""
    rows = list(differences)
    wins: dict[tuple[str, ...], list[str]] = {}
    losses: dict[tuple[str, ...], list[str]] = {}
    unknown: dict[tuple[str, ...], list[str]] = {}
    for other in others:
        mine = [d for d in rows if d.other == other]
        for sign, group in ((1, wins), (-1, losses), (0, unknown)):
            metrics = tuple(d.metric for d in mine if _sign(d.interval) == sign)
            if metrics:
                group.setdefault(metrics, []).append(other)
    parts = [f"{subject} beats {_join(names)} on {_join(on)}" for on, names in wins.items()]
    parts += [
        f"{_join(names)} {'beats' if len(names) == 1 else 'beat'} {subject} on {_join(on)}"
        for on, names in losses.items()
    ]
    for on, names in unknown.items():
        start = "against" if parts else f"{subject} against"
        parts.append(f"{start} {_join(names)} on {_join(on)}: no difference shown")
    return f"{'; '.join(parts)}." if parts else f"{subject} alone: nothing to compare with."


def as_rich(report: Report) -> Table:
    """The table for a terminal."""
    from rich import box
    from rich.table import Table

    table = Table(title=report.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for title in report.columns:
        table.add_column(title, justify="right")
    for name, row in zip(report.controllers, report.cells, strict=True):
        table.add_row(name, *row)
    return table


def as_markdown(report: Report) -> str:
    """Table, verdict and notes as Markdown."""
    lines = [
        f"**{report.title}**",
        "",
        "| | " + " | ".join(report.columns) + " |",
        "| --- |" + " ---: |" * len(report.columns),
        *(
            f"| {name} | " + " | ".join(row) + " |"
            for name, row in zip(report.controllers, report.cells, strict=True)
        ),
        "",
        report.verdict,
        "",
        *(f"- {note}" for note in report.notes),
    ]
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """The same as plain data, with the value of every seed; what is not finite becomes null."""
    rows = {
        name: {
            "figures": dict(zip(report.columns, map(dataclasses.asdict, row), strict=True)),
            "runs": [dataclasses.asdict(run) for run in report.comparison.runs[name]],
        }
        for name, row in zip(report.controllers, report.intervals, strict=True)
    }
    return _plain(
        {
            "title": report.title,
            "seeds": list(report.comparison.seeds),
            "level": LEVEL,
            "controllers": rows,
            "differences": [dataclasses.asdict(d) for d in report.differences],
            "verdict": report.verdict,
            "notes": list(report.notes),
        }
    )


def _notes(comparison: Comparison, runs: list[Run]) -> Iterable[str]:
    seeds = len(comparison.seeds)
    yield (
        f"mean [95 % interval] over {seeds} seeds, the same arrivals for all; "
        "the verdict's intervals hold together at 95 %; TPOT in multiples of its objective"
    )
    if seeds < 10:
        yield f"{seeds} seeds show large differences only; 10 or more are needed for a claim"
    unfinished = sum(run.metrics.unfinished for run in runs)
    if unfinished:
        total = sum(run.metrics.requests for run in runs)
        yield f"{unfinished} of {total} requests were unfinished at the cut and count as misses"
    if any(run.capped for run in runs):
        yield "some runs were cut by the limit on iterations"
    if any(not run.power_is_measured for run in runs):
        yield "energy is modelled, not measured: this machine offers no reading"


def _within(column: Column, interval: Interval) -> Interval:
    """The interval, no further than the figure itself can go."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return interval
    low, high = max(interval.low, 0.0), min(interval.high, column.most)
    return dataclasses.replace(interval, low=low, high=high)


def _with_interval(digits: int) -> Callable[[Interval], str]:
    def write(interval: Interval) -> str:
        mean = _number(interval.mean, digits)
        if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
            return mean
        return f"{mean} [{_number(interval.low, digits)}, {_number(interval.high, digits)}]"

    return write


def _number(value: float, digits: int, unit: str = "") -> str:
    if math.isinf(value):
        return "∞"
    return "–" if math.isnan(value) else f"{value:.{digits}f}{unit}"


def _sign(interval: Interval) -> int:
    return 0 if not interval.excludes_zero else (1 if interval.mean > 0 else -1)


def _join(names: Iterable[str]) -> str:
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
