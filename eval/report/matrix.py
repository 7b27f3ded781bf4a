"""The matrix's verdict: which controller for which regime, in one table with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval.report.blocks import Block, Cell, Chart, Figure, Panels, Section, Table, Words
from eval.report.charts import layout, line
from eval.report.folder import Data
from eval.report.palette import Palette
from eval.report.strips import scale_of, strips
from eval.report.tables import NO_DIFFERENCE, figure_cell, name_cell, words_cell

AXES = {
    "target": "target",
    "drafter": "drafter",
    "mix": "class mix",
    "lengths": "prompt and output",
    "load": "load, × capacity",
    "burst": "arrivals",
}
HEAD = (
    "regime", "cells", "attains most", "attainment %", "all controllers",
    "most goodput", "goodput, × capacity", "all controllers",
)  # fmt: skip
MEASURES = (("attainment", 100.0, 1), ("goodput", 1.0, 3))
"""Metric, factor and digits."""


def verdict(data: Data, palette: Palette) -> Section:
    """Who is best overall, and for every value of every axis."""
    names = data["controllers"]
    everything = [{**data["overall"]}, *data["regimes"]]
    scales = {m: _scale(everything, m, factor, names) for m, factor, _ in MEASURES}
    rows = [_row("all cells", data["overall"], scales, palette, names)]
    for axis in dict.fromkeys(regime["axis"] for regime in data["regimes"]):
        rows.append([words_cell(AXES.get(axis, axis))])
        rows += [
            _row(str(regime["value"]), regime, scales, palette, names)
            for regime in data["regimes"]
            if regime["axis"] == axis
        ]
    says = [sentence(data["overall"]["verdicts"][m]["says"]) for m, _, _ in MEASURES]
    table = Table(
        HEAD,
        rows,
        note="The leader's interquartile mean [95 % interval] over a regime's cells and seeds. "
        f"“a or b”: {NO_DIFFERENCE} between them. “{NO_DIFFERENCE}”: between the leader and "
        "anybody else. The dots are all controllers, in the order of the legend.",
    )
    return Section(
        "verdict",
        "Verdict",
        "Verdict",
        "",
        [Words(says, tone="verdict"), Panels([], names), table, *_faults(data)],
    )


def _row(
    title: str,
    regime: dict[str, Any],
    scales: Mapping[str, tuple[float, float]],
    palette: Palette,
    names: Sequence[str],
) -> list[Cell]:
    row = [words_cell(title), Cell(f"{regime['cells']:,}", tone="quiet")]
    for metric, factor, digits in MEASURES:
        figures = _figures(regime, metric, factor, names)
        found = regime["verdicts"][metric]
        best = found["best"]
        row += [
            _choice(found, names),
            figure_cell(figures[best], digits) if best else Cell("–", tone="quiet"),
            Cell("", strips(figures, scales[metric], palette)),
        ]
    return row


def _figures(
    regime: dict[str, Any], metric: str, factor: float, names: Sequence[str]
) -> dict[str, Figure]:
    most = 100.0 if metric == "attainment" else math.inf
    return {
        name: Figure.read(regime["controllers"][name][metric]).times(factor).within(0.0, most)
        for name in names
    }


def _scale(
    regimes: Sequence[dict[str, Any]], metric: str, factor: float, names: Sequence[str]
) -> tuple[float, float]:
    return scale_of(f for r in regimes for f in _figures(r, metric, factor, names).values())


def _choice(found: Mapping[str, Any], names: Sequence[str]) -> Cell:
    """Whom to take: one, one of several, or anybody."""
    best, level = found["best"], found["level_with"]
    if best is None:
        return words_cell("nobody has a score", "quiet")
    if found.get("beaten_by"):  # in a circle, of controllers that raised in different cells
        return words_cell(found["says"], "quiet")
    if level and len(level) == len(names) - 1:
        return words_cell(NO_DIFFERENCE, "quiet")
    return name_cell(best, " or ".join((best, *level)), "several" if level else "")


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
    for metric, title in (("attainment", "Attainment"), ("goodput", "Goodput")):
        charts = [
            _over_load(target, rows, metric, names, palette, 230)
            for target, rows in by_target.items()
        ]
        if len(charts) > 1:
            blocks.append(Panels(charts, names, 240, title=f"{title}, target by target"))
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
    height: int = 320,
) -> Chart:
    factor, unit = (100, " %") if metric == "attainment" else (1, " × capacity")
    rows = sorted(rows, key=lambda row: float(row["value"]))
    loads = [float(row["value"]) for row in rows]
    data, told = [], []
    for name in names:
        figures = [Figure.read(row["controllers"][name][metric]).times(factor) for row in rows]
        data.extend(line(name, palette.look(name), loads, figures, unit))
        told.append(f"{name} " + ", ".join(f"{f.value:.3g}" for f in figures))
    upward = "objectives met, %" if factor == 100 else "goodput, × capacity"
    y = {"range": [0, 103]} if factor == 100 else {"rangemode": "tozero"}
    return Chart(
        title,
        data,
        layout("load, × capacity", yaxis=y),
        f"{title} at loads {', '.join(f'{load:g}' for load in loads)}: {'; '.join(told)}",
        height,
        upward=upward,
    )
