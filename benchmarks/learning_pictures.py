"""The pictures of docs/results/learning.md: learning curves side by side, a panel an algorithm.

Self-contained SVG that follows the reader's light or dark scheme; what is not measured is not
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from benchmarks.figures import Row
from eval.svg import COLOURS, document, dot, line, text
from train.algorithms.registry import ALGORITHMS

BLUE, ORANGE = COLOURS[:2]
Rows = Mapping[str, Row]
ACROSS, WIDE, HIGH = 4, 190, 130
"""Panels in a row, and the size of each."""
LEFT, TOP, GAP_X, GAP_Y = 64, 84, 24, 56
TITLE = "Held-out score while training: SLO-valid tokens a second less 8 for each violation"


def curves(rows: Rows) -> str | None:
    """Mean over trainings with its 95 % interval, and the level of the best fixed tree."""
    found = {
        name: rows[f"algorithm_{name}"].raw
        for name in ALGORITHMS
        if rows[f"algorithm_{name}"].raw.get("curve", {}).get("steps")
    }
    if not found:
        return None
    most = max(raw["curve"]["steps"][-1] for raw in found.values())
    low, high = _ends(found)
    parts = [text(24, 30, TITLE, 15, "start")]
    legend = (("mean of the trainings, 95 % interval", BLUE), ("best fixed tree", ORANGE))
    for i, (label, colour) in enumerate(legend):
        parts += [dot(30 + 280 * i, 52, colour), text(40 + 280 * i, 56, label, 12, "start")]
    for i, (name, raw) in enumerate(found.items()):
        left = LEFT + (WIDE + GAP_X) * (i % ACROSS)
        top = TOP + (HIGH + GAP_Y) * (i // ACROSS)
        parts += _panel(name, raw, left, top, most, (low, high), is_first=i % ACROSS == 0)
    down = math.ceil(len(found) / ACROSS)
    wide = LEFT + (WIDE + GAP_X) * min(ACROSS, len(found)) + 16
    return document(max(wide, 640), TOP + (HIGH + GAP_Y) * down, TITLE, parts)


def _panel(
    name: str, raw: Any, left: float, top: float, most: int, ends: tuple[float, float],
    is_first: bool,
) -> Iterator[str]:  # fmt: skip
    low, high = ends
    curve = raw["curve"]

    def x(step: float) -> float:
        return left + WIDE * step / most

    def y(score: float) -> float:
        inside = min(max(score, low), high)
        return top + HIGH * (high - inside) / (high - low)

    yield text(left, top - 8, name, 13, "start")
    yield line(left, top + HIGH, left + WIDE, top + HIGH, "currentColor", 1)
    for share in (0.0, 0.5, 1.0):
        score = low + share * (high - low)
        yield line(left, y(score), left + WIDE, y(score), "currentColor", 0.3)
        if is_first:
            yield text(left - 8, y(score) + 4, f"{score:.0f}", 11, "end")
    for share in (0.0, 1.0):
        label = f"{share * most / 1e3:,.0f} k" if share else "0"
        yield text(x(share * most), top + HIGH + 16, label, 11, "end" if share else "start")
    known = [
        (step, lo, hi)
        for step, lo, hi in zip(curve["steps"], curve["low"], curve["high"], strict=True)
        if lo is not None and hi is not None and math.isfinite(lo) and math.isfinite(hi)
    ]
    if known:
        edge = [(step, hi) for step, _, hi in known] + [(step, lo) for step, lo, _ in known[::-1]]
        points = " ".join(f"{x(step):.1f},{y(score):.1f}" for step, score in edge)
        yield f'<polygon points="{points}" fill="{BLUE}" fill-opacity="0.2"/>'
    yield line(left, y(raw["level"]), left + WIDE, y(raw["level"]), ORANGE, 1.5)
    means = list(zip(curve["steps"], curve["mean"], strict=True))
    for (step, mean), (following, then) in pairwise(means):
        yield line(x(step), y(mean), x(following), y(then), BLUE, 2)
    step, mean = means[-1]
    yield dot(x(step), y(mean), BLUE, f"{name}: {mean:.1f} after {step:,} decisions")


def _ends(found: Mapping[str, Any]) -> tuple[float, float]:
    """Of the axis that all panels share: what all means and levels lie within."""
    scores = [float(score) for raw in found.values() for score in raw["curve"]["mean"]]
    scores += [float(raw["level"]) for raw in found.values()]
    low, high = math.floor(min(scores) / 10) * 10, math.ceil(max(scores) / 10) * 10
    return float(low), float(high if high > low else low + 10)


PICTURES: dict[str, Callable[[Rows], str | None]] = {"learning-curves.svg": curves}
"""By file name what draws it, None where nothing is measured."""
