"""AdaptiveSpec's and Learning-to-Draft's claims beside the same on the live engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eval.figures import published
from eval.figures.measured import Measured
from eval.figures.panels import marks, missing
from eval.report.blocks import Chart, Figure
from eval.report.charts import Layout, Trace, layout, point, short, upright
from eval.report.palette import Palette

LEARN = "python -m benchmarks.learning --only"
FROM_PUBLISHED = "EAGLE-3's published tree"
BATCHES = (1, 8)
MODES = {
    "published tree": "the published tree",
    "lossless, default sizes": "tree policy, default sizes",
    "lossless": "tree policy, sizes searched",
    "margin alone": "margin alone",
    "both": "both axes",
}


def adaptivespec(found: Measured, palette: Palette) -> list[Chart]:
    """Speed by what a margin keeps, and the three modes over the best fixed tree."""
    return [_margins(found, b, palette) for b in BATCHES] + [
        _modes(found, b, palette) for b in BATCHES
    ]


def _margins(found: Measured, batch: int, palette: Palette) -> Chart:
    title = f"Speed over {FROM_PUBLISHED}, batch {batch}"
    points = found.raw(f"frontier_batch{batch}", "points")
    if not points:
        return missing(title, "python -m benchmarks.controllers --only adaptivespec frontier")
    look = palette.look(f"batch {batch}")
    traces: list[Trace] = []
    for margin, of in points.items():
        x, y = Figure(100 * of["kept"]), Figure.read(of["speed"])
        words = f"margin {margin}: {short(y.value)}× with {x.value:.0f} % of the answers"
        trace = point(f"batch {batch}", look, x, y, words)
        traces.append({**trace, "mode": "markers+text", "textposition": "top center",
                       "text": [margin], "hovertext": [words]})  # fmt: skip
    kept, speed = published.ADAPTIVESPEC
    traces.append(marks(published.Curve("published", ((kept, speed),)), palette))
    shapes: list[Layout] = []
    floor = found.raw("noise_floor", "kept")
    labels: list[Layout] = []
    if floor is not None:
        shapes, labels = upright(100 * floor, "bfloat16 alone", 0.08)
    return Chart(
        title,
        traces,
        layout(
            "final answers that are the lossless run's, %",
            xaxis={"range": [0, 106]},
            yaxis={"rangemode": "tozero"},
            shapes=shapes,
            annotations=labels,
        ),
        f"{title}, by margin",
        320,
        note="Numbers are margins; 1 is lossless. " + found.made_with(f"frontier_batch{batch}"),
        upward="throughput, ×",
    )


def _modes(found: Measured, batch: int, palette: Palette) -> Chart:
    title = f"Modes over the best fixed tree, batch {batch}"
    ratios: dict[str, Any] | None = found.raw(f"adaptivespec_batch{batch}", "over_best_fixed")
    if not ratios:
        return missing(title, "python -m benchmarks.controllers --only adaptivespec")
    return _rows(title, {MODES.get(k, k): Figure.read(v) for k, v in ratios.items()},
                 f"batch {batch}", palette, found.made_with(f"adaptivespec_batch{batch}"),
                 )  # fmt: skip


def learning_to_draft(found: Measured, palette: Palette) -> list[Chart]:
    """Its gain over the best fixed tree, and what a decision costs."""
    return [_gain(found, palette), _decision(found, palette)]


def _gain(found: Measured, palette: Palette) -> Chart:
    title = "Throughput at batch 1, learned over fixed"
    raw = found.raw("learning_to_draft")
    if not raw:
        return missing(title, f"{LEARN} learning_to_draft")
    row = found.rows["learning_to_draft"]
    low, high = raw["interval_95"]
    chart = _rows(
        title,
        {f"here, over {raw['best_fixed']}": Figure(float(row["number"]), low, high)},
        "learning-to-draft",
        palette,
        found.made_with("learning_to_draft"),
        more=["published, over EAGLE-3"],
    )
    stated = tuple((value, 1.0) for value in published.LEARNING_TO_DRAFT)
    trace = marks(published.Curve("", stated), palette)
    return replace(chart, data=[*chart.data, trace])


def _decision(found: Measured, palette: Palette) -> Chart:
    title = "What a decision costs"
    row = found.rows.get("exported_share")
    if not row or row.get("number") is None:
        return missing(title, f"{LEARN} exported_share")
    most = published.LEARNING_TO_DRAFT_DECISION_PERCENT
    chart = _rows(
        title, {"here, exported controller": Figure(float(row["number"]))}, "learning-to-draft",
        palette, found.made_with("exported_share"), more=["published: under"], unit="% of the time",
    )  # fmt: skip
    trace = marks(published.Curve("", ((most, 1.0),)), palette)
    return replace(chart, data=[*chart.data, trace])


def _rows(
    title: str,
    figures: dict[str, Figure],
    key: str,
    palette: Palette,
    note: str,
    more: list[str] | None = None,
    unit: str = "throughput, ×",
) -> Chart:
    """A row a figure, from the top down; `more` are names of rows that marks will fill."""
    names = [*figures, *(more or [])]
    traces = [
        point(key, palette.look(key), f, Figure(float(i)), f"{name}: {short(f.value)}")
        for i, (name, f) in enumerate(figures.items())
    ]
    ends = [f.high if f.has_interval else f.value for f in figures.values()]
    shapes, labels = upright(1.0) if unit.endswith("×") else ([], [])
    return Chart(
        title,
        traces,
        layout(
            unit,
            xaxis={"range": [0, 1.12 * max(*ends, 1.4)]},
            yaxis={
                "tickvals": list(range(len(names))),
                "ticktext": names,
                "range": [len(names) - 0.4, -0.6],
            },
            shapes=shapes,
            annotations=labels,
        ),
        f"{title}: " + ", ".join(f"{n} {short(f.value)}" for n, f in figures.items()),
        110 + 28 * len(names),
        note=note,
    )
