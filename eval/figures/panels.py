"""What all the papers' panels share: published marks, and a panel that says what is missing."""

from __future__ import annotations

from eval.figures.published import Curve
from eval.report.blocks import Chart
from eval.report.charts import Trace, layout
from eval.report.palette import PUBLISHED, Palette


def marks(curve: Curve, palette: Palette, joined: bool = True) -> Trace:
    """Open grey marks with their label; a dotted line where the paper drew one."""
    look = palette.look(PUBLISHED)
    return {
        "type": "scatter",
        "mode": "lines+markers+text" if joined and len(curve.points) > 1 else "markers+text",
        "x": [x for x, _ in curve.points],
        "y": [y for _, y in curve.points],
        "text": [curve.label] + [""] * (len(curve.points) - 1),
        "textposition": "bottom right" if len(curve.points) > 1 else "top center",
        "textfont": {"size": 11},
        "line": {"color": look.colour, "dash": "dot", "width": 1.5},
        "marker": {
            "color": look.colour,
            "symbol": f"{look.symbol}-open",
            "size": 10,
            "line": {"width": 2},
        },
        "name": PUBLISHED,
        "meta": PUBLISHED,
        "cliponaxis": False,
    }


def missing(title: str, why: str) -> Chart:
    """A panel without a picture."""
    return Chart(title, (), layout(""), f"{title}: not measured", note=f"Not measured: {why}.")
