"""A panel as a picture for a paper or a slide: SVG and PNG, drawn by matplotlib.

Reads the same plain data as the page, so that both show the same: scatter traces with lines, marks,
words and error bars, and dotted lines across.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from eval.report.blocks import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SYMBOLS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v",
    "x": "x", "cross": "P", "pentagon": "p", "star": "*",
}  # fmt: skip
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
WIDE_IN, DPI = 6.4, 160


def pictures(chart: Chart) -> dict[str, bytes]:
    """The panel by file ending. Raises UserError where matplotlib is not installed."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "pictures need matplotlib; pip install 'draftgym[tune]' brings it, or ask for the page "
            "alone with --page-only"
        ) from error
    # Words stay words, and the same panel gives the same file.
    style = {"svg.fonttype": "none", "svg.hashsalt": chart.title, "font.size": 9}
    with matplotlib.rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDE_IN, max(chart.height, 200) / 75), layout="constrained")
        _draw(figure.subplots(), chart)
        found = {}
        for ending in ("svg", "png"):
            file = io.BytesIO()
            metadata = {"Date": None} if ending == "svg" else {}
            figure.savefig(file, format=ending, dpi=DPI, metadata=metadata)
            found[ending] = file.getvalue()
    return found


def _draw(axes: Axes, chart: Chart) -> None:
    axes.set_title(chart.title, loc="left", fontsize=10, fontweight="bold")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    for trace in chart.data:
        _trace(axes, trace)
    for shape in chart.layout.get("shapes") or ():
        axes.axvline(shape["x0"], color="#888888", linestyle=":", linewidth=1.2)
    for label in chart.layout.get("annotations") or ():
        of = axes.get_xaxis_transform() if label.get("yref") == "paper" else axes.transData
        axes.text(label["x"], label["y"], f" {label['text']}", transform=of, fontsize=8)
    _axis(axes, "x", chart.layout["xaxis"])
    _axis(axes, "y", chart.layout["yaxis"])
    if chart.upward:
        axes.set_ylabel(chart.upward)
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    named.pop("_", None)
    if len(named) > 1:
        axes.legend(list(named.values()), list(named), fontsize=8, frameon=False)


def _trace(axes: Axes, trace: Mapping[str, Any]) -> None:
    mode, marker, stroke = trace["mode"], trace.get("marker") or {}, trace.get("line") or {}
    if trace.get("fill"):
        axes.fill(trace["x"], trace["y"], color="#888888", alpha=0.12)
        return
    symbol = str(marker.get("symbol", "circle"))
    colour = marker.get("color") or stroke.get("color")
    is_open = symbol.endswith("-open")
    axes.errorbar(
        trace["x"],
        trace["y"],
        xerr=_arms(trace.get("error_x")),
        yerr=_arms(trace.get("error_y")),
        color=colour,
        linestyle=DASHES[stroke.get("dash", "solid")] if "lines" in mode else "none",
        marker=SYMBOLS[symbol.removesuffix("-open")] if "markers" in mode else "none",
        markerfacecolor="none" if is_open else colour,
        linewidth=1.5,
        markersize=5.5,
        label=trace.get("name") or "_",
    )
    if "text" in mode:
        for x, y, words in zip(trace["x"], trace["y"], trace["text"], strict=True):
            axes.annotate(words, (x, y), xytext=(0, 6), textcoords="offset points", fontsize=8)


def _arms(error: Mapping[str, Any] | None) -> list[Any] | None:
    if not error or "array" not in error:
        return None
    return [error["arrayminus"], error["array"]]


def _axis(axes: Axes, which: str, of: Mapping[str, Any]) -> None:
    if of.get("type") == "log":
        getattr(axes, f"set_{which}scale")("log")
    if limits := of.get("range"):
        ends = [10**end for end in limits] if of.get("type") == "log" else limits
        getattr(axes, f"set_{which}lim")(*ends)
    elif of.get("rangemode") == "tozero":
        getattr(axes, f"set_{which}lim")(0, None)
    if "tickvals" in of:
        getattr(axes, f"set_{which}ticks")(of["tickvals"], labels=of["ticktext"])
        axes.minorticks_off()
    if title := of["title"]["text"]:
        getattr(axes, f"set_{which}label")(title)
