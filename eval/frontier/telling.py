"""The frontier for a terminal: goodput against demand, the audit by class, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eval.part_tables import empty_table, figure_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

RUN_FIGURES = (
    ("attainment", "attainment %", 0),
    ("jain", "Jain", 2),
    ("largest_queue_age_s", "queue age s", 1),
    ("waste", "waste %", 0),
    ("joules_per_valid_token", "J/valid token", 1),
)
CLASS_FIGURES = (
    ("attainment", "attainment %", 0),
    ("rejected", "turned away %", 0),
    ("degraded", "degraded %", 0),
    ("starved", "starved %", 0),
    ("largest_queue_age_s", "queue age s", 1),
    ("token_share", "tokens %", 0),
    ("device_share", "device time %", 0),
)


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Print all of it."""
    console.print(_by_demand(summary))
    console.print(_audit(summary))
    for verdict in summary["verdicts"].values():
        lines = [verdict["feasible"]["says"]]
        lines += [of["says"] for of in verdict["policies"].values()]
        console.print(f"{'. '.join(lines)}.", highlight=False, markup=False)
    first = summary["controllers"][0]
    for says in summary["verdicts"][first]["audit"].values():
        console.print(f"{says}.", highlight=False, markup=False)
    for note in notes(summary):
        console.print(f"({note})", style="dim", highlight=False, markup=False)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What to know of the tables."""
    seeds = len(summary["seeds"])
    told = [
        f"means over {seeds} seeds, [95 % interval]; the same arrivals for all at a demand",
        "Jain's index is of the classes' attainment; queue age is the longest wait for a slot",
    ]
    if seeds < 5:
        told.append("fewer than 5 seeds show large differences only")
    if summary["failed"]:
        told.append("where a run failed, figures are of the other seeds of that demand")
    for of in summary["failed"]:
        where = f"{of['controller']}, {of['overload']}, {of['load']:g} ×, seed {of['seed']}"
        told.append(f"failed: {where}: {of['failed']}")
    return told


def _by_demand(summary: Mapping[str, Any]) -> Table:
    table = empty_table(
        f"goodput, tokens/s, by demand; the other columns at {max(summary['loads']):g} × capacity"
    )
    table.add_column("overload", no_wrap=True)
    for load in summary["loads"]:
        table.add_column(f"{load:g} ×", justify="right")
    for _, title, _ in RUN_FIGURES:
        table.add_column(title, justify="right")
    for controller in summary["controllers"]:
        for overload in summary["overloads"]:
            cells = summary["cells"][controller][overload]
            last = max(cells, key=lambda cell: cell["load"])
            table.add_row(
                controller if overload == summary["overloads"][0] else "",
                overload,
                *(figure_cell(cell["all"]["goodput_tps"], 0, "\n") for cell in cells),
                *(figure_cell(last["all"][name], digits, "\n") for name, _, digits in RUN_FIGURES),
            )
    return table


def _audit(summary: Mapping[str, Any]) -> Table:
    first, most = summary["controllers"][0], max(summary["loads"])
    table = empty_table(f"the audit at {most:g} × capacity, {first}")
    table.add_column("class", no_wrap=True)
    for _, title, _ in CLASS_FIGURES:
        table.add_column(title, justify="right")
    for overload in summary["overloads"]:
        cell = max(summary["cells"][first][overload], key=lambda cell: cell["load"])
        for i, (name, of) in enumerate(cell["classes"].items()):
            table.add_row(
                "" if i else overload,
                name,
                *(figure_cell(of[figure], digits) for figure, _, digits in CLASS_FIGURES),
            )
    return table
