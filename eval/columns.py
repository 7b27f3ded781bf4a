"""The figures that a comparison shows of every run, and how each is written.

`JUDGED` are those that the verdict is about; the rest is shown beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.classes import ClassTable
from eval.runner import Run
from eval.statistics import Interval
from eval.writing import number, with_interval


@dataclass(frozen=True)
class Column:
    """A figure of a run and how it is written."""

    title: str
    figure: Callable[[Run], float]
    write: Callable[[Interval], str]
    most: float = math.inf
    """Natural upper bound; all figures are at least 0. No interval reaches beyond."""


# What the verdict is about, both better when higher.
JUDGED: tuple[tuple[str, Callable[[Run], float]], ...] = (
    ("attainment", lambda run: run.metrics.attainment),
    ("goodput", lambda run: run.metrics.goodput_tps),
)

COST: tuple[Column, ...] = (
    Column("valid tok/s", lambda r: r.metrics.valid_tps, with_interval(1)),
    Column("valid tok/device-s", lambda r: r.valid_tokens_per_device_s, with_interval(1)),
    Column("J/token", lambda r: r.joules_per_token, with_interval(2)),
    Column("J/valid token", lambda r: r.joules_per_valid_token, with_interval(2)),
    Column("wasted % of drafts", lambda r: 100 * r.waste_share, with_interval(0), most=100),
    Column("rejected nodes", lambda r: r.rejected_nodes, with_interval(0)),
    Column("violations", lambda r: r.metrics.violations, with_interval(1)),
)


def columns(classes: ClassTable) -> tuple[Column, ...]:
    """The table's columns; the TPOT column is of the class with the tightest objective."""
    tightest = min(classes.classes, key=lambda c: c.tpot_ratio).name
    return (
        Column("attainment %", lambda r: 100 * r.metrics.attainment, with_interval(0), most=100),
        Column("goodput tok/s", lambda r: r.metrics.goodput_tps, with_interval(1)),
        Column(
            f"p95 TPOT, {tightest}",
            lambda r: r.metrics.by_class[tightest].tpot_ratio.p95,
            lambda i: number(i.mean, 2, " ×"),
        ),
        Column(
            f"p50 TTFT, {tightest}",
            lambda r: r.metrics.by_class[tightest].ttft_s.p50,
            lambda i: number(i.mean, 1, " s"),
        ),
        Column("tokens/iteration", lambda r: r.tokens_per_iteration, with_interval(2)),
        Column("J/token", lambda r: r.joules_per_token, lambda i: number(i.mean, 2)),
        Column("decision", lambda r: r.decision_s * 1e6, lambda i: number(i.mean, 0, " µs")),
    )
