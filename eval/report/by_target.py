"""What the matrix holds by target: waits by class, what serving cost, and how bad the bad runs are.

Seconds and joules of different targets are not put together, so each target has panels of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval.report import by_class
from eval.report.blocks import Block, Cell, Chart, Figure, Panels, Section, Table
from eval.report.by_class import RANKS, Tail
from eval.report.charts import from_zero, layout, line, point, short
from eval.report.folder import Data
from eval.report.palette import Palette
from eval.report.tables import figure_cell, name_cell, words_cell

ALL = "all"
WAITS = (
    ("ttft_s", "Time to first token", "s"),
    ("tpot_ratio", "Time per token, over its objective", "×"),
    ("itl_s", "Gap between tokens", "s"),
    ("completion_s", "Completion time", "s"),
)
SCALES = {"waste_share": (100.0, 0), "memory_bytes": (2.0**-30, 2)}
"""Factor and digits of what is shown in another unit."""
UNITS = {
    "waste_share": "share of drafted nodes wasted, %",
    "memory_bytes": "memory, GiB (modelled)",
}
Figures = Mapping[tuple[str, str], Mapping[str, Any]]
"""Of one target, by controller and class."""


def tails(data: Data, palette: Palette) -> Section:
    """p50, p95 and p99 by class, target by target."""
    names = data["controllers"]
    blocks = []
    for target, of in _targets(data).items():
        classes = list(dict.fromkeys(c for _, c in of if c != ALL))
        charts = [
            by_class.chart(
                title,
                unit,
                {key: _tail(figures, wait) for key, figures in of.items() if key[1] != ALL},
                names,
                classes,
                palette,
                1.0 if unit == "×" else None,
            )
            for wait, title, unit in WAITS
        ]
        blocks.append(Panels(charts, names, 420, title=target))
    return Section(
        "tails",
        "How long the slow ones wait",
        "Tails",
        "By class: a hollow mark is p50, a full one p95, a tick p99, interquartile means over a "
        "target's cells. Left is better; the dotted line is the objective.",
        blocks,
    )


def _tail(figures: Mapping[str, Any], wait: str) -> Tail:
    return Tail(*(Figure.read(figures.get(f"{wait}_{rank}")) for rank in RANKS))


FRONTIERS = (
    ("joules_per_valid_token", "Energy: objectives met against J per SLO-valid token"),
    ("waste_share", "Waste: objectives met against drafted nodes wasted, %"),
)


def cost(data: Data, palette: Palette) -> Section:
    """Energy and waste against attainment, and the figures, target by target."""
    names, titles = data["controllers"], data.get("costs") or {}
    whole = {
        target: {name: of[(name, ALL)] for name in names if (name, ALL) in of}
        for target, of in _targets(data).items()
    }
    blocks: list[Block] = [
        Panels([_against(t, of, palette, key) for t, of in whole.items()], names, 240, title=title)
        for key, title in FRONTIERS
    ]
    rows: list[list[Cell]] = []
    for target, of in whole.items():
        rows.append([words_cell(target)])
        rows += [
            [name_cell(name), *(_cost_cell(key, of_one) for key in titles)]
            for name, of_one in of.items()
        ]
    head = ["controller", *(UNITS.get(key, title) for key, title in titles.items())]
    blocks.append(
        Table(
            head,
            rows,
            note="Interquartile means over a target's cells; the intervals say how far cells lie "
            "apart.",
        )
    )
    return Section(
        "cost",
        "Waste and energy",
        "Cost",
        "What attainment costs; up and to the left is better. Power and memory are modelled.",
        blocks,
    )


def _cost_cell(key: str, figures: Mapping[str, Any]) -> Cell:
    factor, digits = SCALES.get(key, (1.0, 2))
    figure = Figure.read(figures.get(key)).times(factor)
    digits = 0 if figure.is_known and abs(figure.value) >= 100 else digits
    return figure_cell(figure, digits)


def _against(
    target: str, whole: Mapping[str, Mapping[str, Any]], palette: Palette, cost: str
) -> Chart:
    factor = SCALES.get(cost, (1.0, 2))[0]
    traces, told, xs, ys = [], [], [], [100.0]
    for name, figures in whole.items():
        x = Figure(Figure.read(figures.get(cost)).value * factor)
        y = Figure(Figure.read(figures.get("attainment")).value * 100)
        told.append(f"{name} attains {short(y.value)} % at {short(x.value)}")
        traces.append(point(name, palette.look(name), x, y, f"<b>{name}</b><br>{told[-1]}"))
        xs.append(x.value)
        ys.append(y.value)
    least = max(min(y for y in ys if math.isfinite(y)) - 8, 0)
    unit = "%" if factor == 100.0 else "J"
    return Chart(
        target,
        traces,
        layout(unit, xaxis=from_zero(xs), yaxis={"range": [least, 104]}),
        f"{cost} of {target}: {'; '.join(told)}",
        220,
        upward="objectives met, %",
    )


def bad_runs(data: Data, palette: Palette) -> Section | None:
    """Performance profiles, and the mean of each controller's worst twentieth of runs."""
    worst = data.get("worst")
    if not worst:
        return None
    names = list(worst["controllers"])
    thresholds = [100 * float(t) for t in worst["thresholds"]]
    lines = []
    for name in names:
        figures = [Figure.read(f).times(100) for f in worst["controllers"][name]["profile"]]
        lines.extend(line(name, palette.look(name), thresholds, figures, " % of runs"))
    chart = Chart(
        "Performance profile",
        lines,
        layout(f"{worst['metric']} of a run above, %", yaxis={"range": [0, 103]}),
        "share of runs above each attainment, by controller",
        320,
        upward="share of runs, %",
    )
    rows = [
        [
            name_cell(name),
            figure_cell(Figure.read(of["cvar_5"]).times(100), 1),
            figure_cell(Figure.read(of.get("goodput_cvar_5")), 3),
        ]
        for name, of in worst["controllers"].items()
    ]
    return Section(
        "bad-runs",
        "How bad the bad runs are",
        "Bad runs",
        "Higher is better. The worst twentieth of runs is what a mean hides.",
        [
            Panels([chart], names, 420),
            Table(
                [
                    "controller",
                    f"{worst['metric']} in the worst 5 % of runs, %",
                    "goodput in the worst 5 %, × capacity",
                ],
                rows,
            ),
        ],
    )


def audit(data: Data) -> Section:
    """What each class got, target by target."""
    rows = []
    for target, of in _targets(data).items():
        for (name, c), figures in of.items():
            if c == ALL:
                continue
            shares = [
                Figure.read(figures.get(key)).times(100).within(0, 100)
                for key in ("attainment", "tpot_attainment", "ttft_attainment")
            ]
            rows.append(
                [
                    name_cell(name),
                    words_cell(target),
                    words_cell(c),
                    *(figure_cell(share, 0) for share in shares),
                ]
            )
    head = ["controller", "target", "class", "attainment %", "TPOT alone %", "TTFT alone %"]
    return Section(
        "classes",
        "What each class was given",
        "Classes",
        "Attainment by class, interquartile means over a target's cells.",
        [Table(head, rows)],
    )


def _targets(data: Data) -> dict[str, Figures]:
    found: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    rows: Sequence[Mapping[str, Any]] = data.get("by_target") or ()
    for row in rows:
        of = found.setdefault(row["target"], {})
        of[(row["controller"], row["slo_class"])] = row["figures"]
    return dict(found)
