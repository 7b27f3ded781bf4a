"""The table at the end: controllers by figures with intervals, and the verdict in words.

`build` decides what is said; `as_rich`, `as_markdown` and `as_json` say the same in three forms,
the latter two with what serving cost and the figures by class besides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.classes import ClassTable
from eval import class_table
from eval.columns import COST, JUDGED, Column, columns
from eval.contenders import WHOLE_PROMPTS
from eval.runner import Comparison, Settings
from eval.significance import holm, wilcoxon
from eval.statistics import (
    Interval,
    mean_interval,
    paired_difference,
    several,
    verdict,
    violation_ratio,
)
from eval.writing import joined, markdown_table, plain, with_interval

if TYPE_CHECKING:
    from rich.table import Table

LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """Subject minus other on one metric, over the same seeds."""

    subject: str
    other: str
    metric: str
    interval: Interval
    says: str
    wilcoxon_p: float = math.nan
    """Of the signed-rank test, adjusted by Holm's rule over all that the verdict compares."""


@dataclass(frozen=True)
class Fewer:
    """Violations of the best other controller, the one with the fewest, over the subject's."""

    other: str
    ratio: Interval | None
    """Above 1 the subject has fewer; None where it has too few for a ratio."""


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
    cost: tuple[tuple[Interval, ...], ...] = ()
    """[controllers][COST]."""
    violations: Fewer | None = None
    """None where there is nobody to compare with."""


def build(
    comparison: Comparison,
    classes: ClassTable,
    title: str,
    subject: str,
    rng: np.random.Generator,
    is_replay: bool = False,
    served_notes: Sequence[str] = (),
) -> Report:
    """The report of `comparison`; the verdict sets `subject` against each other controller.

    The verdict's intervals hold together at 95 % (Bonferroni over all that it compares).
    `is_replay` says whose power it is; `served_notes` tell what else to know about what was served.
    """
    names = tuple(comparison.runs)
    shown = columns(classes)
    intervals = _intervals(comparison, shown, rng)
    others = [name for name in names if name != subject]
    differences = _differences(comparison, subject, others, rng)
    fewer = _fewer(comparison, subject, others, rng)
    return Report(
        title=f"{title}, {len(comparison.seeds)} paired seeds",
        columns=tuple(c.title for c in shown),
        controllers=names,
        cells=_written(shown, intervals),
        intervals=intervals,
        differences=differences,
        verdict=in_words(subject, others, differences),
        notes=(*_notes(comparison, fewer, is_replay), *served_notes),
        comparison=comparison,
        cost=_intervals(comparison, COST, rng),
        violations=fewer,
    )


def _intervals(
    comparison: Comparison, shown: Sequence[Column], rng: np.random.Generator
) -> tuple[tuple[Interval, ...], ...]:
    return tuple(
        tuple(
            mean_interval(comparison.values(n, c.figure), rng, LEVEL).within(0.0, c.most)
            for c in shown
        )
        for n in comparison.runs
    )


def _differences(
    comparison: Comparison, subject: str, others: Sequence[str], rng: np.random.Generator
) -> tuple[Difference, ...]:
    level = several(LEVEL, len(others) * len(JUDGED))
    found, p_values = [], []
    for other in others:
        for metric, figure in JUDGED:
            ours, theirs = comparison.values(subject, figure), comparison.values(other, figure)
            interval = paired_difference(ours, theirs, rng, level)
            says = verdict(subject, other, interval, metric, higher_is_better=True)
            found.append(Difference(subject, other, metric, interval, says))
            p_values.append(wilcoxon(ours - theirs))
    adjusted = zip(found, holm(p_values), strict=True)
    return tuple(dataclasses.replace(d, wilcoxon_p=p) for d, p in adjusted)


def _fewer(
    comparison: Comparison, subject: str, others: Sequence[str], rng: np.random.Generator
) -> Fewer | None:
    counts = {n: comparison.values(n, lambda run: run.metrics.violations) for n in comparison.runs}
    if not others:
        return None
    best = min(others, key=lambda name: float(counts[name].sum()))
    return Fewer(best, violation_ratio(counts[best], counts[subject], rng, LEVEL))


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
    parts = [f"{subject} beats {joined(names)} on {joined(on)}" for on, names in wins.items()]
    parts += [
        f"{joined(names)} {'beats' if len(names) == 1 else 'beat'} {subject} on {joined(on)}"
        for on, names in losses.items()
    ]
    for on, names in unknown.items():
        start = "against" if parts else f"{subject} against"
        parts.append(f"{start} {joined(names)} on {joined(on)}: no difference shown")
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
    """Table, verdict and notes as Markdown; then cost and the figures by class."""
    cost = _written(COST, report.cost)
    lines = [
        f"**{report.title}**",
        "",
        *markdown_table(("", *report.columns), _named(report.controllers, report.cells)),
        "",
        report.verdict,
        "",
        *(f"- {note}" for note in report.notes),
        "",
        "**What it cost**",
        "",
        *markdown_table(("", *(c.title for c in COST)), _named(report.controllers, cost)),
        "",
        "**By class**, means over the seeds",
        "",
        *markdown_table(class_table.COLUMNS, class_table.class_rows(report.comparison)),
    ]
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """The same as plain data, with the value of every seed; what is not finite becomes null."""
    titles = [c.title for c in COST]
    rows = {
        name: {
            "figures": dict(zip(report.columns, map(dataclasses.asdict, row), strict=True)),
            "cost": dict(zip(titles, map(dataclasses.asdict, cost), strict=True)),
            "runs": [dataclasses.asdict(run) for run in report.comparison.runs[name]],
        }
        for name, row, cost in zip(report.controllers, report.intervals, report.cost, strict=True)
    }
    return plain(
        {
            "title": report.title,
            "seeds": list(report.comparison.seeds),
            "level": LEVEL,
            "controllers": rows,
            "differences": [dataclasses.asdict(d) for d in report.differences],
            "violations": report.violations and dataclasses.asdict(report.violations),
            "verdict": report.verdict,
            "notes": list(report.notes),
        }
    )


def _notes(comparison: Comparison, fewer: Fewer | None, is_replay: bool) -> Iterable[str]:
    seeds = len(comparison.seeds)
    runs = [run for rows in comparison.runs.values() for run in rows]
    yield (
        f"mean [95 % interval] over {seeds} seeds, the same arrivals for all; "
        "the verdict's intervals hold together at 95 %; TPOT in multiples of its objective"
    )
    if seeds < 10:
        yield f"{seeds} seeds show large differences only; 10 or more are needed for a claim"
    if fewer is not None and fewer.ratio is not None:
        ratio = with_interval(2)(fewer.ratio)
        yield f"violations of {fewer.other}, the fewest of the others, over the subject's: {ratio}"
    unfinished = sum(run.metrics.unfinished for run in runs)
    total = sum(run.metrics.requests for run in runs)
    if not total:
        yield "no request arrived in any run, so nothing is shown; use a longer run or more load"
    if unfinished:
        yield f"{unfinished} of {total} requests were unfinished at the cut and count as misses"
    if any(run.capped for run in runs):
        yield "some runs were cut by the limit on iterations"
    if all(run.power_is_measured for run in runs):
        yield "energy is measured"
    else:
        why = "replay has the profile's power" if is_replay else "this machine offers no reading"
        yield f"energy is modelled, not measured: {why}"
    by_settings: dict[str, list[str]] = {}
    for name, rows in comparison.runs.items():
        for settings in [rows[0].settings] if rows and rows[0].settings else []:
            by_settings.setdefault(settings_in_words(settings), []).append(name)
    for words, names in by_settings.items():
        yield f"served with {words}: {joined(names)}"


def settings_in_words(settings: Settings) -> str:
    """What the engine was set to, in a few words."""
    chunk = int(settings["prefill_tokens"])
    reading = f"prompts in chunks of {chunk}" if chunk < WHOLE_PROMPTS else "whole prompts first"
    words = [f"order {settings['order']}", reading, f"up to {settings['max_running']} running"]
    if settings["overload"] != "none":
        words.append(f"overload {settings['overload']}")
    return ", ".join(words)


def _written(
    shown: Sequence[Column], intervals: Iterable[Sequence[Interval]]
) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(c.write(i) for c, i in zip(shown, row, strict=True)) for row in intervals)


def _named(names: Iterable[str], rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    return [(name, *row) for name, row in zip(names, rows, strict=True)]


def _sign(interval: Interval) -> int:
    return 0 if not interval.excludes_zero else (1 if interval.mean > 0 else -1)
