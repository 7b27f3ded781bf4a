"""Plotly figures as plain data, in one house style: what every chart of a report is drawn with.

No Plotly is imported: the page brings its script, the figures are dictionaries of its schema (a
test holds them against it). Ink, grid and hover colours are the page's, by its style sheet, so that
a chart follows light, dark and print; only the controllers' colours stand here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from eval.report.blocks import Figure
from eval.report.palette import Look

Trace = dict[str, Any]
Layout = dict[str, Any]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
CHANGE = {"width": 1.5, "dash": "dot", "color": "#888888"}
BAND_OPACITY = 0.16


def layout(x: str, **more: Any) -> Layout:
    """Axes and little else, `x` the horizontal one's title with its unit; `more` goes in on top."""
    made: Layout = {
        "font": {"family": FONT, "size": 12},
        "margin": {"l": 40, "r": 14, "t": 10, "b": 46},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "xaxis": axis(x),
        "yaxis": axis(""),
    }
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = {**made[name], **value}
        else:
            made[name] = value
    return made


def axis(title: str, **more: Any) -> Layout:
    """An axis that nobody drags and whose labels never leave the chart."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "ticks": "",
        "nticks": 6,
        **more,
    }


def line(
    name: str, look: Look, x: Sequence[float], y: Sequence[Figure], unit: str = ""
) -> list[Trace]:
    """A line through the values with its intervals as a band; where nothing is known it breaks."""
    traces = []
    if any(figure.has_interval for figure in y):
        ends = [(at, f) for at, f in zip(x, y, strict=True) if f.has_interval]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [*(at for at, _ in ends), *(at for at, _ in reversed(ends))],
                "y": [*(f.low for _, f in ends), *(f.high for _, f in reversed(ends))],
                "fill": "toself",
                "fillcolor": faded(look.colour, BAND_OPACITY),
                "line": {"width": 0},
                "hoverinfo": "skip",
                "meta": name,
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "lines+markers" if len(x) <= 24 else "lines",
            "x": list(x),
            "y": [known(f.value) for f in y],
            "line": {"color": look.colour, "dash": look.dash, "width": 2},
            "marker": {"color": look.colour, "symbol": look.symbol, "size": 7},
            "name": name,
            "meta": name,
            "text": [hover(name, f, unit) for f in y],
            "hoverinfo": "text",
        }
    )
    return traces


def point(name: str, look: Look, x: Figure, y: Figure, words: str) -> Trace:
    """One dot with its intervals both ways."""

    def arms(figure: Figure) -> dict[str, Any]:
        if not figure.has_interval:
            return {"visible": False}
        return {
            "type": "data",
            "symmetric": False,
            "array": [figure.high - figure.value],
            "arrayminus": [figure.value - figure.low],
            "color": faded(look.colour, 0.55),
            "thickness": 2,
            "width": 0,
        }

    return {
        "type": "scatter",
        "mode": "markers",
        "x": [known(x.value)],
        "y": [known(y.value)],
        "error_x": arms(x),
        "error_y": arms(y),
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 11},
        "cliponaxis": False,
        "name": name,
        "meta": name,
        "text": [words],
        "hoverinfo": "text",
    }


def upright(at: float, words: str = "", high: float = 1.0) -> tuple[list[Layout], list[Layout]]:
    """A dotted line at `at`, and words beside it at that height: shapes, annotations."""
    shape = {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": CHANGE}
    if not words:
        return [shape], []
    label = {
        "x": at, "y": high, "yref": "paper", "text": words, "showarrow": False,
        "xanchor": "left", "yanchor": "top", "xshift": 4, "font": {"size": 11},
    }  # fmt: skip
    return [shape], [label]


def from_zero(values: Iterable[float]) -> Layout:
    """Range of an axis that begins a little before zero, so that a mark on it stands whole."""
    most = max((v for v in values if math.isfinite(v)), default=0.0) or 1.0
    return {"range": [-0.04 * most, 1.06 * most]}


def log_ticks(values: Iterable[float]) -> Layout:
    """Range and labels of a logarithmic axis: 1, 2 and 5 of each ten, fewer over a long span."""
    positive = [v for v in values if math.isfinite(v) and v > 0]
    if not positive:
        return {}
    low, high = math.log10(min(positive)), math.log10(max(positive))
    room = max(0.06 * (high - low), 0.08)
    low, high = low - room, high + room
    tens = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 2, 5) if high - low < 2.2 else (1, 3) if high - low < 3.2 else (1,)
    ticks = [step * 10.0**ten for ten in tens for step in steps]
    shown = [t for t in ticks if low <= math.log10(t) <= high]
    return {"range": [low, high], "tickvals": shown, "ticktext": [f"{t:g}" for t in shown]}


def hover(name: str, figure: Figure, unit: str = "") -> str:
    """What the pointer shows."""
    if not figure.is_known:
        return name
    told = f"<b>{name}</b><br>{short(figure.value)}{unit}"
    if figure.has_interval:
        told += f" [{short(figure.low)}, {short(figure.high)}]"
    return told


def short(value: float) -> str:
    """Three significant digits, never as a power of ten."""
    if not math.isfinite(value):
        return "∞" if math.isinf(value) else "–"
    digits = 0 if value == 0 else max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{min(digits, 4)}f}"


def known(value: float) -> float | None:
    """As JSON has it: a gap where nothing is known."""
    return value if math.isfinite(value) else None


def faded(colour: str, opacity: float) -> str:
    """`#rrggbb` with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"
