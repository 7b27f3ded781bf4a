"""How long the slow ones of each class wait: p50, p95 and p99 of a figure, by class and controller.

One chart a figure. A row is a controller within its class; a hollow mark is p50, a full one p95, a
tick p99, and a line holds the three together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eval.report.blocks import Chart, Figure
from eval.report.charts import Trace, known, layout, log_ticks, short
from eval.report.palette import Palette

RANKS = ("p50", "p95", "p99")


class Tail(NamedTuple):
    """p50, p95 and p99 of one figure, of a class under a controller."""

    p50: Figure
    p95: Figure
    p99: Figure


Tails = Mapping[tuple[str, str], Tail]
"""By controller and class."""


def chart(
    title: str,
    unit: str,
    tails: Tails,
    names: Sequence[str],
    classes: Sequence[str],
    palette: Palette,
    objective: float | None = None,
) -> Chart:
    """One figure of all classes; `objective` draws a line that should not be passed."""
    places = _places(names, classes)
    data: list[Trace] = []
    for name in names:
        data.extend(_traces(name, unit, tails, classes, places, palette))
    rows = [places[(name, c)] for c in classes for name in names]
    middle = [sum(places[(n, c)] for n in names) / len(names) for c in classes]
    more = layout(
        unit,
        xaxis={"type": "log", **log_ticks(f.value for t in tails.values() for f in t)},
        yaxis={
            "tickvals": middle,
            "ticktext": list(classes),
            "range": [max(rows) + 0.9, min(rows) - 0.9],
            "showgrid": False,
        },
    )
    if objective is not None:
        more["shapes"] = [_bar(objective)]
    return Chart(
        title=title,
        data=data,
        layout=more,
        label=f"{title} by class and controller, in {unit}: " + _in_words(tails),
        height=92 + 15 * (len(rows) + len(classes)),
    )


def _places(names: Sequence[str], classes: Sequence[str]) -> dict[tuple[str, str], float]:
    """Rows from the top down, a row's room between classes."""
    return {
        (name, c): j * (len(names) + 1.0) + i
        for j, c in enumerate(classes)
        for i, name in enumerate(names)
    }


def _traces(
    name: str,
    unit: str,
    tails: Tails,
    classes: Sequence[str],
    places: Mapping[tuple[str, str], float],
    palette: Palette,
) -> list[Trace]:
    look = palette.look(name)
    rows = [(c, tails[(name, c)]) for c in classes if (name, c) in tails]
    rows = [(c, t) for c, t in rows if t.p50.is_known]
    y = [places[(name, c)] for c, _ in rows]
    whole = {
        "type": "scatter", "mode": "lines", "meta": name, "hoverinfo": "skip",
        "line": {"color": look.colour, "width": 1.5},
        "x": [v for _, t in rows for v in (*(known(f.value) for f in t), None)],
        "y": [v for at in y for v in (at, at, at, None)],
    }  # fmt: skip
    symbols = (f"{look.symbol}-open", look.symbol, "line-ns-open")
    marks = [
        {
            "type": "scatter", "mode": "markers", "meta": name, "name": name,
            "x": [known(getattr(t, rank).value) for _, t in rows], "y": y,
            "marker": {
                "color": look.colour, "symbol": symbol, "size": 8,
                "line": {"color": look.colour, "width": 1.5},
            },
            "hoverinfo": "text",
            "text": [_hover(name, c, rank, getattr(t, rank), unit) for c, t in rows],
        }
        for rank, symbol in zip(RANKS, symbols, strict=True)
    ]  # fmt: skip
    return [whole, *marks]


def _hover(name: str, slo_class: str, rank: str, figure: Figure, unit: str) -> str:
    told = f"<b>{name}</b>, {slo_class}<br>{rank} {short(figure.value)} {unit}"
    if figure.has_interval:
        told += f" [{short(figure.low)}, {short(figure.high)}]"
    return told


def _bar(at: float) -> dict[str, object]:
    return {
        "type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": "#888888", "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def _in_words(tails: Tails) -> str:
    said = (f"{n} on {c} p95 {short(t.p95.value)}" for (n, c), t in tails.items())
    return "; ".join(said)
