"""The test's result for a terminal: regret by disturbance, what a change costs, the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval.adaptation_test.summary import ALL
from eval.part_tables import empty_table, figure_cell, known

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OF_A_CHANGE: tuple[tuple[str, str, int], ...] = (
    ("settling_s", "settled s, median", 0),
    ("restricted_s", "settled s, mean", 1),
    ("not_settled", "not settled %", 0),
    ("excess_s", "excess s", 1),
    ("transient", "regret before %", 1),
    ("steady", "regret after %", 1),
    ("debt", "SLO debt %", 1),
    ("undershoot", "under- shoot %", 0),
    ("violations", "misses", 1),
    ("churn", "churn /s", 2),
)
"""Figures of the second table, their headings and digits."""


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Print all of it."""
    names = sorted(summary["controllers"], key=lambda name: _regret(summary, name))
    console.print(_by_disturbance(summary, names))
    console.print(_by_controller(summary, names))
    for name, verdict in summary["verdicts"].items():
        style = "bold" if name == ALL else None
        console.print(f"{verdict['says']}.", style=style, highlight=False, markup=False)
    for note in notes(summary):
        console.print(f"({note})", style="dim", highlight=False, markup=False)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What to know of the tables."""
    of_all = summary["figures"][ALL].values()
    seeds = len(summary["seeds"])
    limit_s = min(of.get("limit_s") or math.inf for of in of_all)
    trees = "; ".join(
        f"{of['title']}: {', '.join(s['oracle_tree'] for s in of['stretches'])}"
        for of in summary["disturbances"].values()
    )
    told = [
        f"mean [95 % interval] over {seeds} seeds, the same arrivals for all; the verdicts' "
        "intervals are those of all pairs",
        "regret: SLO-valid tokens behind the switching oracle's, in percent of them; below zero "
        "is better than the oracle",
        f"the oracle's trees, by stretch: {trees}",
        "settled, and what hangs on it, by the mean course over the seeds; a change after which it "
        f"had not settled counts as censored, in the mean as {limit_s:g} s",
    ]
    told += caveats(summary)
    if seeds < 10:
        told.append("fewer than 10 seeds show large differences only; a claim needs more")
    return told


def caveats(summary: Mapping[str, Any]) -> list[str]:
    """How far the figures of all seven go, and who failed where."""
    of_all = summary["figures"][ALL].values()
    told = [
        "regret weighs seeds and disturbances alike, before and after weigh changes by the "
        "oracle's tokens, so these two need not add up to it"
    ]
    if unreached := sum(of.get("excess_censored", 0) for of in of_all):
        told.append(
            f"excess time is a lower bound: {unreached} passages that never came to the oracle's "
            "level count as if they had at the next change"
        )
    if unjudged := sum(of["unjudged"] for of in of_all):
        changes = sum(of["changes"] for of in of_all)
        told.append(
            f"{unjudged} of {changes} passages are not judged: the oracle's own noise hides them"
        )
    for of in summary.get("failed") or ():
        told.append(
            f"{of['controller']} failed in {of['disturbance']}, seed {of['seed']}: {of['failed']}"
        )
    return told


def _by_disturbance(summary: Mapping[str, Any], names: Sequence[str]) -> Table:
    table = empty_table("regret after a change, % of the switching oracle's tokens in time")
    for name in summary["figures"]:
        table.add_column(
            "all seven" if name == ALL else summary["disturbances"][name]["title"], justify="right"
        )
    for controller in names:
        cells = [
            figure_cell(of[controller]["regret"], 0, "\n") for of in summary["figures"].values()
        ]
        table.add_row(controller, *cells)
    return table


def _by_controller(summary: Mapping[str, Any], names: Sequence[str]) -> Table:
    table = empty_table("what a change costs, all seven together")
    for _, title, _ in OF_A_CHANGE:
        table.add_column(title, justify="right")
    for controller in names:
        of = summary["figures"][ALL][controller]
        cells = [figure_cell(of[name], digits, "\n") for name, _, digits in OF_A_CHANGE]
        table.add_row(controller, *cells)
    return table


def _regret(summary: Mapping[str, Any], name: str) -> float:
    value = known(summary["figures"][ALL][name]["regret"]["value"])
    return math.inf if math.isnan(value) else value
