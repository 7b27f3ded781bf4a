"""The sections of a plain comparison: what results.json holds of controllers on one workload.

Its figures have their intervals already; those by class are put together here over the seeds, by
the same bootstrap (`eval.statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eval.report import by_class
from eval.report.blocks import Block, Cell, Chart, Figure, Panels, Section, Table, Words
from eval.report.by_class import RANKS, Tail
from eval.report.charts import from_zero, layout, point, short
from eval.report.folder import Data
from eval.report.palette import Palette
from eval.report.tables import (
    NO_DIFFERENCE,
    column,
    difference_column,
    figure_cell,
    name_cell,
    words_cell,
)
from eval.statistics import mean_interval

WAITS = (
    ("ttft_s", "Time to first token", "s"),
    ("tpot_ratio", "Time per token, over its objective", "×"),
    ("itl_s", "Gap between tokens", "s"),
    ("completion_s", "Completion time", "s"),
)
PERCENT = ("attainment",)
DRAWN = ("attainment %", "goodput tok/s")
DIGITS = {"attainment %": 0, "goodput tok/s": 1, "tokens/iteration": 2, "J/token": 2, "decision": 0}


def sections(data: Data, palette: Palette, is_first: bool = True) -> list[Section | None]:
    """All that a comparison has to show, the verdict first; behind a matrix, its verdict alone."""
    if not is_first:
        lead = str(data["title"])
        return [
            replace(
                _verdict(data, palette),
                ident="one",
                title="One workload",
                short="One workload",
                lead=lead,
            )
        ]
    waits = [_tails(data, palette)] if _classes(data) else []  # nobody came, nobody waited
    return [_verdict(data, palette), *waits, _cost(data, palette), _audit(data)]


def _verdict(data: Data, palette: Palette) -> Section:
    names = list(data["controllers"])
    titles = list(data["controllers"][names[0]]["figures"])
    columns = []
    for title in titles:
        figures = [Figure.read(data["controllers"][n]["figures"][title]) for n in names]
        digits = DIGITS.get(title, 2)
        if title in DRAWN:
            columns.append(column(names, figures, palette, digits))
        else:
            columns.append([figure_cell(Figure(f.value), digits) for f in figures])
    rows = [[name_cell(n), *cells] for n, *cells in zip(names, *columns, strict=True)]
    blocks: list[Block] = [
        Words([data["verdict"]], tone="verdict"),
        Table(["controller", *map(_headed, titles)], rows),
        *_differences(data, palette),
        Words(data["notes"], is_list=True),
    ]
    return Section("verdict", "Verdict", "Verdict", "", blocks)


def _headed(title: str) -> str:
    written = {
        "decision": "decision, µs",
        "J/token": "J per token",
        "tokens/iteration": "tokens per iteration",  # which a narrow column can break
    }
    return written.get(title, title)


def _differences(data: Data, palette: Palette) -> Iterable[Table]:
    """The subject against each other controller, as the verdict counts it."""
    listed = data["differences"]
    for metric in dict.fromkeys(d["metric"] for d in listed):
        of = [d for d in listed if d["metric"] == metric]
        figures = [Figure.read(d["interval"]).times(100 if metric in PERCENT else 1) for d in of]
        unit = "points" if metric in PERCENT else "tok/s"
        colours = [palette.look(d["subject"]).colour for d in of]
        cells = difference_column(figures, colours)
        rows = [
            [
                name_cell(d["other"], f"against {d['other']}"),
                cell,
                Cell(_p(d["wilcoxon_p"]), tone="quiet"),
                words_cell(*_said(d, f)),
            ]
            for d, f, cell in zip(of, figures, cells, strict=True)
        ]
        yield Table(
            ["", f"{of[0]['subject']} minus other, {unit}", "Wilcoxon p, Holm", "what is shown"],
            rows,
            caption=f"{of[0]['subject']}: {metric}",
        )


def _said(difference: dict[str, Any], figure: Figure) -> tuple[str, str]:
    if figure.straddles_zero:
        return NO_DIFFERENCE, "quiet"
    return ("better", "good") if figure.value > 0 else ("worse", "bad")


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _tails(data: Data, palette: Palette) -> Section:
    names, classes = list(data["controllers"]), _classes(data)
    rng = np.random.default_rng(0)
    charts = []
    for key, title, unit in WAITS:
        tails = {
            (n, c): Tail(*(_over_seeds(data, n, c, _rank(key, r), rng, math.inf) for r in RANKS))
            for n in names
            for c in classes
        }
        bar = 1.0 if unit == "×" else None
        charts.append(by_class.chart(title, unit, tails, names, classes, palette, bar))
    return Section(
        "tails",
        "How long the slow ones wait",
        "Tails",
        "By class, means over the seeds: a hollow mark is p50, a full one p95, a tick p99. Left is "
        "better. The dotted line is the objective.",
        [Panels(charts, names, 420)],
    )


def _rank(key: str, rank: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda metrics: metrics[key][rank]


def _cost(data: Data, palette: Palette) -> Section:
    names = list(data["controllers"])
    titles = list(data["controllers"][names[0]]["cost"])
    columns = [
        [
            figure_cell(Figure.read(data["controllers"][n]["cost"][t]), 2 if "J/" in t else 1)
            for n in names
        ]
        for t in titles
    ]
    rows = [[name_cell(n), *cells] for n, *cells in zip(names, *columns, strict=True)]
    charts = [
        _against(data, palette, "J/valid token", "Energy", "J per SLO-valid token"),
        _against(data, palette, "rejected nodes", "Waste", "rejected candidates a run"),
    ]
    return Section(
        "cost",
        "What it costs",
        "Cost",
        "Goodput against energy and rejected work; up and to the left is better.",
        [Panels(charts, names, 380), Table(["controller", *titles], rows)],
    )


def _against(data: Data, palette: Palette, cost: str, title: str, unit: str) -> Chart:
    traces, told = [], []
    ends: list[float] = []
    for name, row in data["controllers"].items():
        x, y = Figure.read(row["cost"][cost]), Figure.read(row["figures"]["goodput tok/s"])
        words = f"<b>{name}</b><br>goodput {short(y.value)} tok/s<br>{short(x.value)} {unit}"
        ends.extend((x.value, x.high))
        traces.append(point(name, palette.look(name), x, y, words))
        told.append(f"{name} {short(y.value)} tok/s at {short(x.value)} {unit}")
    return Chart(
        f"{title} against goodput",
        traces,
        layout(unit, xaxis=from_zero(ends), yaxis={"rangemode": "tozero"}),
        "; ".join(told),
        300,
        "goodput, tok/s",
    )


def _audit(data: Data) -> Section:
    rng = np.random.default_rng(0)
    head = [
        "controller", "class", "requests a run", "attainment %", "missed", "rejected", "overdue",
        "work: verified nodes", "of them in vain", "longest wait for a slot, s",
    ]  # fmt: skip
    keys = ("violations", "rejected", "overdue", "verified_nodes", "wasted_nodes")
    rows = []
    for name in data["controllers"]:
        for c in _classes(data):

            def of(key: str, name: str = name, c: str = c) -> Figure:
                return _over_seeds(data, name, c, lambda m: m[key], rng)

            rows.append(
                [
                    name_cell(name),
                    words_cell(c),
                    figure_cell(Figure(of("requests").value), 1),
                    figure_cell(of("attainment").times(100).within(0, 100), 0),
                    *(figure_cell(Figure(of(key).value), 1) for key in keys[:3]),
                    *(figure_cell(Figure(of(key).value), 0) for key in keys[3:]),
                    figure_cell(Figure(of("largest_queue_age_s").value), 2),
                ]
            )
    return Section(
        "audit",
        "Who was served and who was not",
        "Audit",
        "What each class was given and what it lost, means over the seeds.",
        [Table(head, rows)],
    )


def _classes(data: Data) -> list[str]:
    """Classes that had requests, in the order of the class table."""
    runs = [run for row in data["controllers"].values() for run in row["runs"]]
    by_name: dict[str, int] = {}
    for run in runs:
        for name, metrics in run["metrics"]["by_class"].items():
            by_name[name] = by_name.get(name, 0) + metrics["requests"]
    return [name for name, requests in by_name.items() if requests]


def _over_seeds(
    data: Data,
    name: str,
    slo_class: str,
    figure: Callable[[dict[str, Any]], float | None],
    rng: np.random.Generator,
    null: float = math.nan,
) -> Figure:
    """Mean over the seeds whose runs had requests of the class.

    JSON has `null` for what was not finite: a wait that never ended is endless, any other figure
    had nothing to count and is left out.
    """
    values: Sequence[float] = []
    values = [
        null if (value := figure(metrics)) is None else value
        for run in data["controllers"][name]["runs"]
        for metrics in [run["metrics"]["by_class"][slo_class]]
        if metrics["requests"]
    ]
    interval = mean_interval(values, rng, data.get("level", 0.95))
    return Figure(interval.mean, interval.low, interval.high)
