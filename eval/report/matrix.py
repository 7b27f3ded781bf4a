"""The matrix's verdict: which controller for which regime, in one table with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.report.blocks import Block, Cell, Chart, Figure, Panels, Section, Table, Words
from eval.report.charts import layout, line
from eval.report.folder import Data
from eval.report.palette import Palette
from eval.report.strips import strip
from eval.report.tables import NO_DIFFERENCE, figure_cell, name_cell, words_cell
from eval.writing import joined

AXES = {
    "target": "target",
    "drafter": "drafter",
    "mix": "class mix",
    "lengths": "prompt and output",
    "load": "load, × capacity",
    "burst": "arrivals",
}
HEAD = (
    "regime", "cells",
    "most attainment", "attainment %", "shown ahead of", "no difference shown against",
    "most goodput", "goodput, × capacity", "shown ahead of", "no difference shown against",
)  # fmt: skip
EVERYBODY = "all others"


def verdict(data: Data, palette: Palette) -> Section:
    """Who is best overall, and for every value of every axis."""
    regimes = [{"axis": "", "value": "all cells", **data["overall"]}, *data["regimes"]]
    rows: list[list[Cell]] = []
    for regime in regimes:
        name = f"{AXES.get(regime['axis'], regime['axis'])}: {regime['value']}"
        row = [words_cell(name.removeprefix(": ")), Cell(f"{regime['cells']:,}")]
        for metric, factor, digits in (("attainment", 100, 1), ("goodput", 1, 3)):
            row.extend(_best(regime, metric, factor, digits, palette, data["controllers"]))
        rows.append(row)
    says = [sentence(data["overall"]["verdicts"][m]["says"]) for m in ("attainment", "goodput")]
    table = Table(
        HEAD,
        rows,
        "Which controller for which regime",
        "Interquartile mean [95 % interval] over a regime's cells and seeds. Several names under "
        f"“{NO_DIFFERENCE}” are as good a choice as the first: take the cheapest.",
    )
    blocks: list[Block] = [Words(says, tone="verdict"), table, *_faults(data)]
    blocks.append(Words(data["notes"], is_list=True))
    return Section("verdict", "Verdict", "Verdict", "", blocks)


def _best(
    regime: dict[str, Any],
    metric: str,
    factor: float,
    digits: int,
    palette: Palette,
    names: Sequence[str],
) -> list[Cell]:
    """Who has most, how much, against whom that is shown and against whom it is not."""
    found = regime["verdicts"][metric]
    best = found["best"]
    if best is None:
        return [
            words_cell("nobody has a score", "quiet"),
            *(Cell("–", tone="quiet") for _ in "123"),
        ]
    figure = Figure.read(regime["controllers"][best][metric]).times(factor)
    drawn = strip(figure, (0.0, 1.05 * factor), palette.look(best).colour)
    return [
        name_cell(best),
        figure_cell(figure, digits, strip_svg=drawn),
        _names(found["beats"], names, "good"),
        _names(found["level_with"], names, "quiet"),
    ]


def _names(some: Sequence[str], names: Sequence[str], tone: str) -> Cell:
    if not some:
        return words_cell("–", "quiet")
    everybody = len(some) == len(names) - 1 > 2
    return words_cell(EVERYBODY if everybody else joined(some), tone)


def _faults(data: Data) -> list[Block]:
    """Cells in which a controller raised."""
    if not data.get("faults"):
        return []
    rows = [
        [name_cell(f["controller"]), words_cell(f["cell"]), words_cell(f["fault"], "bad")]
        for f in data["faults"]
    ]
    return [Table(["controller", "cell", "raised"], rows, "Marked cells; the rest stands")]


def sentence(words: str) -> str:
    """With a full stop."""
    return words if words.endswith(".") else f"{words}."


def against_load(data: Data, palette: Palette) -> Section | None:
    """Attainment and goodput over the load, of all cells and target by target."""
    names = data["controllers"]
    over = [r for r in data["regimes"] if r["axis"] == "load"]
    by_target: dict[str, list[dict[str, Any]]] = {}
    for row in data.get("loads_by_target") or ():
        by_target.setdefault(row["target"], []).append({**row, "value": row["load"]})
    if len(over) < 2:
        return None
    blocks = [
        Panels(
            [
                _over_load("Attainment, all targets", over, "attainment", names, palette),
                _over_load("Goodput, all targets", over, "goodput", names, palette),
            ],
            names,
            380,
        )
    ]
    for target, rows in by_target.items() if len(by_target) > 1 else ():
        charts = [
            _over_load("Attainment", rows, "attainment", names, palette),
            _over_load("Goodput", rows, "goodput", names, palette),
        ]
        blocks.append(Panels(charts, names, 380, title=target))
    return Section(
        "load",
        "Attainment and goodput against load",
        "Load",
        "Load is in multiples of each target's capacity, the rate at which its best fixed tree "
        "drains the mix. Bands are 95 % intervals: where they overlap, do not rank.",
        blocks,
    )


def _over_load(
    title: str,
    rows: Sequence[dict[str, Any]],
    metric: str,
    names: Sequence[str],
    palette: Palette,
) -> Chart:
    factor, unit = (100, " %") if metric == "attainment" else (1, " × capacity")
    rows = sorted(rows, key=lambda row: float(row["value"]))
    loads = [float(row["value"]) for row in rows]
    data, told = [], []
    for name in names:
        figures = [Figure.read(row["controllers"][name][metric]).times(factor) for row in rows]
        data.extend(line(name, palette.look(name), loads, figures, unit))
        told.append(f"{name} " + ", ".join(f"{f.value:.3g}" for f in figures))
    upward = "requests that met their objectives, %" if factor == 100 else "goodput, × capacity"
    y = {"range": [0, 103]} if factor == 100 else {"rangemode": "tozero"}
    return Chart(
        title,
        data,
        layout("load, × capacity", yaxis=y),
        f"{title} at loads {', '.join(f'{load:g}' for load in loads)}: {'; '.join(told)}",
        320,
        upward=upward,
    )
