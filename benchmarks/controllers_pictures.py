"""The pictures of docs/results/controllers.md, from the rows that were measured.

Bars of figure 14 beside the published ones, violation ratios of figures 8 to 11, and the frontier
over AdaptiveSpec's margin. Self-contained SVG that follows the reader's light or dark scheme; what
is not measured is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.figures import Row
from benchmarks.sweeps_account import number
from eval.svg import COLOURS, document, dot, line, text

BLUE, ORANGE, GREEN = COLOURS[:3]
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
        parts.append(text(LEFT - 10, y + 17, label, 12, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y + 5}" width="{PLOT * mean / 100:.1f}" height="16" '
            f'fill="{BLUE}"/>'
        )
        if label in published:
            x = LEFT + PLOT * published[label] / 100
            parts.append(line(x, y + 1, x, y + 25, ORANGE, 4))
        parts.append(text(LEFT + PLOT + 16, y + 17, of["text"], 12, "start"))
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

    parts = [line(at(4.3), TOP, at(4.3), high, ORANGE, 1.5)]
    parts.append(text(at(4.3), TOP - 6, "4.3, the paper's best", 11, "middle"))
    parts.append(line(at(1), TOP, at(1), high, "currentColor", 1.5))
    for ratio in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64):
        parts.append(text(at(ratio), high + 18, f"{ratio:g}", 11, "middle"))
    for i, (name, p) in enumerate(points.items()):
        y, ratio = TOP + LINE * i + 13, p["violations"]
        parts.append(text(LEFT - 10, y + 4, name, 12, "end"))
        if ratio is None:
            parts.append(text(at(1) - 8, y + 4, "too few to tell", 11, "end"))
            continue
        parts.append(line(at(ratio["low"]), y, at(number(ratio["high"])), y, BLUE, 2))
        words = f"{ratio['mean']:.2f} over {p['fewest']}"
        parts.append(dot(at(ratio["mean"]), y, BLUE, f"{name}: {words}"))
        parts.append(text(LEFT + PLOT + 16, y + 4, words, 12, "start"))
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
        parts.append(text(LEFT - 8, y + 4, f"{step / 2:g}×", 11, "end"))
        parts.append(line(LEFT, y, LEFT + PLOT, y, "currentColor", 0.3))
    x = LEFT + PLOT * KEPT / 100
    parts.append(line(x, TOP, x, high, GREEN, 1.5))
    parts.append(text(x - 4, high - 6, "93 %", 11, "end"))
    floor = rows["noise_floor"].raw.get("kept")
    if floor is not None:
        x = LEFT + PLOT * floor
        parts.append(line(x, TOP, x, high, "currentColor", 1.5))
        parts.append(text(x - 4, high - 6, "bfloat16 alone", 11, "end"))
    for batch, points in found.items():
        for m, p in points.items():
            x, speed = LEFT + PLOT * p["kept"], p["speed"]["value"]
            y = high - 260 * speed / most
            parts.append(dot(x, y, colours[batch], f"batch {batch}, m = {m}: {speed:.2f}×"))
            # One batch's labels above its dots, the other's below: the dots lie close.
            parts.append(text(x, y - 9 if batch > 1 else y + 17, m, 11, "middle"))
    title = "AdaptiveSpec: speed over EAGLE-3's published tree, by its margin"
    return _document(title, high, parts)


PICTURES: dict[str, Callable[[Rows], str | None]] = {
    "controllers-fig14.svg": peaks,
    "controllers-sweeps.svg": sweeps,
    "controllers-frontier.svg": frontier,
}
"""By file name what draws it, None where nothing is measured."""


def _document(title: str, high: float, parts: Sequence[str]) -> str:
    return document(LEFT + PLOT + 190, high + 48, title, [text(24, 30, title, 16, "start"), *parts])


def _axis(high: float, low: int, most: int, step: int, unit: str) -> Iterator[str]:
    yield line(LEFT, high, LEFT + PLOT, high, "currentColor", 1)
    for value in range(low, most + 1, step):
        x = LEFT + PLOT * (value - low) / (most - low)
        yield line(x, TOP, x, high, "currentColor", 0.3)
        yield text(x, high + 18, f"{value}", 11, "middle")
    yield text(LEFT + PLOT + 24, high + 18, unit, 11, "start")


def _legend(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    for i, (label, colour) in enumerate(entries):
        yield dot(LEFT + 6 + 110 * i, 54, colour)
        yield text(LEFT + 16 + 110 * i, 58, label, 12, "start")
