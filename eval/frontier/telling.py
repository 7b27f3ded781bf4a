"""The frontier for a terminal: goodput against demand, the audit by class, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eval.writing import number

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
    for of in summary["failed"]:
        where = f"{of['controller']}, {of['overload']}, {of['load']:g} ×, seed {of['seed']}"
        told.append(f"failed: {where}: {of['failed']}")
    return told


def _by_demand(summary: Mapping[str, Any]) -> Table:
    table = _table(
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
                *(_cell(cell["all"]["goodput_tps"], 0) for cell in cells),
                *(_cell(last["all"][name], digits) for name, _, digits in RUN_FIGURES),
            )
    return table


def _audit(summary: Mapping[str, Any]) -> Table:
    first, most = summary["controllers"][0], max(summary["loads"])
    table = _table(f"the audit at {most:g} × capacity, {first}")
    table.add_column("class", no_wrap=True)
    for _, title, _ in CLASS_FIGURES:
        table.add_column(title, justify="right")
    for overload in summary["overloads"]:
        cell = max(summary["cells"][first][overload], key=lambda cell: cell["load"])
        for i, (name, of) in enumerate(cell["classes"].items()):
            table.add_row(
                "" if i else overload,
                name,
                *(_cell(of[figure], digits) for figure, _, digits in CLASS_FIGURES),
            )
    return table


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    return table


def _cell(figure: Mapping[str, Any], digits: int) -> str:
    value, low, high = (_float(figure[key]) for key in ("value", "low", "high"))
    text = number(value, digits)
    if not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text} [{number(low, digits)}, {number(high, digits)}]"


def _float(value: float | None) -> float:
    return math.nan if value is None else value
