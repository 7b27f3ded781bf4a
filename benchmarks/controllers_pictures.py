"""The pictures of docs/results/controllers.md, from the rows that were measured.

Bars of figure 14 beside the published ones, violation ratios of figures 8 to 11, and the frontier
over AdaptiveSpec's margin. Self-contained SVG that follows the reader's light or dark scheme; what
is not measured is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from benchmarks.figures import Row
from benchmarks.sweeps_account import number

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
"""Of Okabe and Ito's, which the colour-blind tell apart on light and on dark."""
STYLE = (
    "svg{color:#1c1c1c;background:#fff;font-family:system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e6e6;background:#16181c}}"
)
Rows = Mapping[str, Row]
LEFT, TOP, LINE, PLOT = 210, 76, 26, 440
LEAST_RATIO, MOST_RATIO = 0.25, 64.0
KEPT = 93.0


def peaks(rows: Rows) -> str | None:
    """Attainment of figure 14: a bar here, a mark where it was published."""
    raw = rows["fig14_first"].raw
    if "contenders" not in raw:
        return None
    told, published = raw["contenders"], raw["published"]
    high = TOP + LINE * len(told)
    parts = [*_legend((("here", BLUE), ("published", ORANGE))), *_axis(high, 0, 100, 20, "%")]
    for i, (label, of) in enumerate(told.items()):
        y = TOP + LINE * i
        mean = float(of["attainment"]["mean"])
        parts.append(_text(LEFT - 10, y + 17, label, 12, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y + 5}" width="{PLOT * mean / 100:.1f}" height="16" '
            f'fill="{BLUE}"/>'
        )
        if label in published:
            x = LEFT + PLOT * published[label] / 100
            parts.append(_line(x, y + 1, x, y + 25, ORANGE, 4))
        parts.append(_text(LEFT + PLOT + 16, y + 17, of["text"], 12, "start"))
    return _document("AdaServe, figure 14: requests that met their TPOT objective", high, parts)


def sweeps(rows: Rows) -> str | None:
    """Violations of the best baseline over AdaServe's by point, on a logarithmic axis."""
    points = rows["sweeps_ahead"].raw.get("points")
    if not points:
        return None
    high = TOP + LINE * len(points)

    def at(ratio: float) -> float:
        inside = min(max(ratio, LEAST_RATIO), MOST_RATIO)
        return LEFT + PLOT * math.log(inside / LEAST_RATIO) / math.log(MOST_RATIO / LEAST_RATIO)

    parts = [_line(at(4.3), TOP, at(4.3), high, ORANGE, 1.5)]
    parts.append(_text(at(4.3), TOP - 6, "4.3, the paper's best", 11, "middle"))
    parts.append(_line(at(1), TOP, at(1), high, "currentColor", 1.5))
    for ratio in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64):
        parts.append(_text(at(ratio), high + 18, f"{ratio:g}", 11, "middle"))
    for i, (name, p) in enumerate(points.items()):
        y, ratio = TOP + LINE * i + 13, p["violations"]
        parts.append(_text(LEFT - 10, y + 4, name, 12, "end"))
        if ratio is None:
            parts.append(_text(at(1) - 8, y + 4, "too few to tell", 11, "end"))
            continue
        parts.append(_line(at(ratio["low"]), y, at(number(ratio["high"])), y, BLUE, 2))
        words = f"{ratio['mean']:.2f} over {p['fewest']}"
        parts.append(_dot(at(ratio["mean"]), y, BLUE, f"{name}: {words}"))
        parts.append(_text(LEFT + PLOT + 16, y + 4, words, 12, "start"))
    title = "AdaServe, figures 8 to 11: violations of the best baseline over AdaServe's"
    return _document(title, high + 6, parts)


def frontier(rows: Rows) -> str | None:
    """Speed over EAGLE-3's published tree by the share of final answers that are kept."""
    found = {
        batch: rows[f"frontier_batch{batch}"].raw["points"]
        for batch in (1, 8)
        if "points" in rows[f"frontier_batch{batch}"].raw
    }
    if not found:
        return None
    high = TOP + 260
    every = [p for points in found.values() for p in points.values()]
    most = math.ceil(max(1.0, *(p["speed"]["value"] for p in every)) * 2) / 2
    colours = {1: BLUE, 8: ORANGE}
    legend = [(f"batch {batch}", colours[batch]) for batch in found]
    parts = [*_legend(legend), *_axis(high, 0, 100, 20, "% of answers kept")]
    for step in range(int(2 * most) + 1):
        y = high - 260 * step / (2 * most)
        parts.append(_text(LEFT - 8, y + 4, f"{step / 2:g}×", 11, "end"))
        parts.append(_line(LEFT, y, LEFT + PLOT, y, "currentColor", 0.3))
    x = LEFT + PLOT * KEPT / 100
    parts.append(_line(x, TOP, x, high, GREEN, 1.5))
    parts.append(_text(x - 4, TOP + 12, "93 %", 11, "end"))
    floor = rows["noise_floor"].raw.get("kept")
    if floor is not None:
        x = LEFT + PLOT * floor
        parts.append(_line(x, TOP, x, high, "currentColor", 1.5))
        parts.append(_text(x - 4, TOP + 26, "bfloat16 alone", 11, "end"))
    for batch, points in found.items():
        for m, p in points.items():
            x, speed = LEFT + PLOT * p["kept"], p["speed"]["value"]
            y = high - 260 * speed / most
            parts.append(_dot(x, y, colours[batch], f"batch {batch}, m = {m}: {speed:.2f}×"))
            # One batch's labels above its dots, the other's below: the dots lie close.
            parts.append(_text(x, y - 9 if batch > 1 else y + 17, f"m = {m}", 11, "middle"))
    return _document("AdaptiveSpec: speed over EAGLE-3's published tree", high, parts)


PICTURES: dict[str, Callable[[Rows], str | None]] = {
    "controllers-fig14.svg": peaks,
    "controllers-sweeps.svg": sweeps,
    "controllers-frontier.svg": frontier,
}
"""By file name what draws it, None where nothing is measured."""


def _document(title: str, high: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + PLOT + 190} {high + 48:.0f}"'
        f' role="img" aria-label="{escape(title)}" fill="currentColor"><style>{STYLE}</style>'
    )
    return "\n".join([head, _text(24, 30, title, 16, "start"), *parts, "</svg>"]) + "\n"


def _axis(high: float, low: int, most: int, step: int, unit: str) -> Iterator[str]:
    yield _line(LEFT, high, LEFT + PLOT, high, "currentColor", 1)
    for value in range(low, most + 1, step):
        x = LEFT + PLOT * (value - low) / (most - low)
        yield _line(x, TOP, x, high, "currentColor", 0.3)
        yield _text(x, high + 18, f"{value}", 11, "middle")
    yield _text(LEFT + PLOT + 24, high + 18, unit, 11, "start")


def _legend(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    for i, (label, colour) in enumerate(entries):
        yield _dot(LEFT + 6 + 110 * i, 54, colour, label)
        yield _text(LEFT + 16 + 110 * i, 58, label, 12, "start")


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )


def _dot(x: float, y: float, colour: str, words: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}">'
        f"<title>{escape(words)}</title></circle>"
    )


def _text(x: float, y: float, words: str, size: float, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )
