"""AdaServe's figures 8 to 15 (EuroSys 2026) beside the same on replay."""

from __future__ import annotations

import csv
import gzip
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.figures import published
from eval.figures.measured import ROOT, Measured
from eval.figures.panels import marks, missing
from eval.report.blocks import Chart, Figure
from eval.report.charts import Trace, known, layout, line
from eval.report.palette import Palette

SWEEP = "python -m benchmarks.controllers --only sweeps"
ARRIVALS, PEAKS = Path("adaserve") / "arrivals.csv.gz", "fig14/fluc_6m_peak4.0"
BIN_S, PEAKS_S = 10.0, 360.0
NUMBER = re.compile(r"(?:prop|slo|rps)([\d.]+)")
Points = Mapping[str, Mapping[str, Any]]


def charts(found: Measured, palette: Palette) -> list[Chart]:
    """One a figure, in the paper's order; what was not measured says so."""
    points: Points = found.raw("sweeps_ahead", "points") or {}
    rates = _of(points, "fig. 8/9")
    shares, scales = _of(points, "fig. 10"), _of(points, "fig. 11")
    return [
        _attainment("Figure 8: attainment by rate", "requests/s", rates, published.FIG8, palette),
        _ratio("Figure 8: violations, best baseline over AdaServe", "violations", rates,
               published.FIG8_VIOLATIONS, palette),
        _ratio("Figure 9: goodput, AdaServe over the best baseline", "goodput", rates,
               published.FIG9_GOODPUT_RATIO, palette),
        _attainment("Figure 10: attainment by the urgent share", "share of urgent requests",
                    shares, published.FIG10, palette),
        _attainment("Figure 11: attainment by how tight the urgent class is",
                    "urgent objective, × unloaded", scales, published.FIG11, palette),
        missing("Figure 12: accepted tokens by rate",
                "the sweeps keep no accepted lengths; the pair's acceptance is fitted to this "
                "figure's published 3.4, 5.0 and 6.6 drafts for chains of 4, 6 and 8 "
                "(docs/synthetic.md), so it shows nothing new"),
        _arrivals(),
        _peaks(found, palette),
        _selection(found, palette),
    ]  # fmt: skip


def _of(points: Points, figure: str) -> dict[float, Mapping[str, Any]]:
    """The points of a figure by what varies in it."""
    found = {}
    for name, point in points.items():
        if name.startswith(figure):
            numbers = NUMBER.findall(name)
            found[float(numbers[-1])] = point
    return dict(sorted(found.items()))


def _attainment(
    title: str,
    axis: str,
    points: Mapping[float, Mapping[str, Any]],
    curves: Sequence[published.Curve],
    palette: Palette,
) -> Chart:
    if not points:
        return missing(title, f"{SWEEP} measures it")
    names = list(next(iter(points.values()))["attainment"])
    traces: list[Trace] = []
    for name in names:
        values = [Figure(float(point["attainment"][name])) for point in points.values()]
        traces.extend(line(name, palette.look(name), list(points), values, " %"))
    for curve in curves:
        traces.append(marks(curve, palette))
    return Chart(
        title,
        traces,
        layout(axis, yaxis={"range": [0, 106]}),
        f"{title}, here by contender and published: {[c._asdict() for c in curves]}",
        300,
        note="Means of 10 seeds; published values are read off the plot.",
        upward="requests that met their TPOT objective, %",
    )


def _ratio(
    title: str,
    key: str,
    points: Mapping[float, Mapping[str, Any]],
    curve: published.Curve,
    palette: Palette,
) -> Chart:
    if not points:
        return missing(title, f"{SWEEP} measures it")
    figures = {x: Figure.read(p[key]) for x, p in points.items() if p[key] is not None}
    traces = _with_arms("adaserve", figures, palette) if figures else []
    traces.append(marks(curve, palette))
    ends = [f.high if f.has_interval else f.value for f in figures.values()]
    most = max((*ends, curve.points[0][1]))
    top = math.log10(most * 1.4)
    y: dict[str, Any] = {"range": [0, 1.1 * most]}
    if key == "violations":
        ticks = [1, 2, 5, 10, 20, 50]
        y = {
            "type": "log",
            "range": [-0.2, top],
            "tickvals": ticks,
            "ticktext": list(map(str, ticks)),
        }
    few = len(points) - len(figures)
    note = f"Not shown: {few} points with fewer than 30 violations of AdaServe's." if few else ""
    return Chart(
        title, traces, layout("requests/s", xaxis={"range": [2.2, 5.0]}, yaxis=y), title, 300,
        "ratio [95 % interval]", note,
    )  # fmt: skip


def _with_arms(name: str, figures: Mapping[float, Figure], palette: Palette) -> list[Trace]:
    look, shown = palette.look(name), list(figures.values())
    return [
        {
            "type": "scatter", "mode": "markers", "x": list(figures),
            "y": [known(f.value) for f in shown],
            "error_y": {
                "type": "data", "symmetric": False, "width": 0, "thickness": 2,
                "array": [f.high - f.value if f.has_interval else 0.0 for f in shown],
                "arrayminus": [f.value - f.low if f.has_interval else 0.0 for f in shown],
                "color": look.colour,
            },
            "marker": {"color": look.colour, "symbol": look.symbol, "size": 9},
            "name": name, "meta": name,
        }
    ]  # fmt: skip


def _peaks(found: Measured, palette: Palette) -> Chart:
    title = "Figure 14: classes that peak at different times"
    contenders = found.raw("fig14_first", "contenders")
    if not contenders:
        return missing(title, "python -m benchmarks.controllers --only fig14 measures it")
    names = list(contenders)
    traces = []
    for place, name in enumerate(names):
        figure = Figure.read(contenders[name]["attainment"])
        look = palette.look(name)
        traces.append(
            {
                "type": "scatter", "mode": "markers", "x": [figure.value], "y": [place],
                "error_x": {
                    "type": "data", "symmetric": False, "array": [figure.high - figure.value],
                    "arrayminus": [figure.value - figure.low], "color": look.colour, "width": 0,
                    "thickness": 2,
                },
                "marker": {"color": look.colour, "symbol": look.symbol, "size": 10},
                "name": name, "meta": name,
            }
        )  # fmt: skip
    stated = [(published.FIG14[n], place) for place, n in enumerate(names) if n in published.FIG14]
    traces.append(marks(published.Curve("", tuple(stated)), palette, joined=False))
    return Chart(
        title,
        traces,
        layout(
            "requests that met their TPOT objective, %",
            xaxis={"range": [0, 103]},
            yaxis={
                "tickvals": list(range(len(names))),
                "ticktext": names,
                "range": [len(names) - 0.4, -0.6],
                "nticks": len(names),
            },
        ),
        f"{title}: " + ", ".join(f"{n} {contenders[n]['text']}" for n in names),
        300,
        note="The paper's chains ran on vLLM 0.8.4, whose speculative path paid for prefill and "
        "drafting in ways that this engine does not. " + found.made_with("fig14_first"),
    )


def _selection(found: Measured, palette: Palette) -> Chart:
    title = "Figure 15: what selection costs"
    raw = found.raw("selection_share")
    if not raw:
        return missing(title, "python -m benchmarks.controllers --only selection measures it")
    share = 100 * sum(raw["selecting_s"]) / sum(raw["iteration_s"])
    here = "here, SmolLM2-135M on 2 cores, batch 16"
    names = [here, *(f"published, {n}" for n in published.FIG15_SELECTION_PERCENT)]
    look = palette.look("adaserve")
    stated = tuple((v, 1.0 + i) for i, v in enumerate(published.FIG15_SELECTION_PERCENT.values()))
    traces = [
        {
            "type": "scatter", "mode": "markers", "x": [share], "y": [0], "name": "adaserve",
            "marker": {"color": look.colour, "symbol": look.symbol, "size": 10},
            "meta": "adaserve",
        },
        marks(published.Curve("", stated), palette, joined=False),
    ]  # fmt: skip
    return Chart(
        title,
        traces,
        layout(
            "share of the serving time, %",
            xaxis={"range": [0, 0.5]},
            yaxis={"tickvals": [0, 1, 2], "ticktext": names, "range": [2.6, -0.6]},
        ),
        f"{title}: {share:.2f} % here",
        200,
        note="The figure's split into speculation and verification was not measured apart here.",
    )


def _arrivals() -> Chart:
    """The public trace of figure 14: it is the paper's, nothing here was measured."""
    title = "Figure 13: arrivals of figure 14"
    path = shared() / ARRIVALS
    if not path.is_file():
        return missing(
            title, f"the published arrivals are not at {path}; $DRAFTGYM_SHARED names their folder"
        )
    bins = int(PEAKS_S / BIN_S)
    counts: dict[str, list[float]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["trace"] == PEAKS:
                of = counts.setdefault(row["slo_class"], [0.0] * bins)
                of[min(int(float(row["arrival_s"]) / BIN_S), bins - 1)] += 1 / BIN_S
    times = [BIN_S * (i + 0.5) for i in range(bins)]
    looks = Palette()  # of classes, which are no contenders: each has its name beside it
    traces: list[Trace] = [
        {
            "type": "scatter", "mode": "lines", "x": times, "y": rates,
            "line": {"color": looks.look(name).colour, "width": 2},
        }
        for name, rates in counts.items()
    ]  # fmt: skip
    labels = [
        {
            "x": times[rates.index(max(rates))], "y": max(rates), "text": name,
            "showarrow": False, "yshift": 10,
        }
        for name, rates in counts.items()
    ]  # fmt: skip
    return Chart(
        title, traces, layout("seconds", annotations=labels, yaxis={"rangemode": "tozero"}),
        f"{title}: requests a second by class", 300, "requests/s",
        f"The paper's own trace, in {BIN_S:g} s bins.",
    )  # fmt: skip


def shared() -> Path:
    """The folder of public data, which may be missing."""
    named = os.environ.get("DRAFTGYM_SHARED")
    return Path(named) if named else ROOT.parent / "shared" / "data"
