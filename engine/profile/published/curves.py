"""Cost curves through published points, with every step of the staircase left standing.

Two kinds of step: a pass is padded to the next captured size, so up to the largest of those a
curve is flat between them; beyond, a pass jumps where a matrix product needs another row of tiles.
"""

from __future__ import annotations

import numpy as np

from engine.profile.cost_model import Curve
from engine.protocol import Bools, Floats

# Beyond captured sizes, a rise between neighbours is a jump where it is this large a share of the
# time, and this many times steeper than the points around it.
JUMP_SHARE, JUMP_STEEPNESS = 0.03, 3.0
AROUND = 4


def through(tokens: Floats, seconds: Floats, padded_to: int = 0, straight: float = 0.0) -> Curve:
    """The curve over points [P], `tokens` ascending, that never falls.

    Up to `padded_to` tokens a pass costs what the next point does. Beyond, it lies on lines
    between points, those left out that are within `straight` of a line, with jumps. Where
    measurements fall they are levelled first (isotonic regression).
    """
    level = levelled(seconds)
    rises = np.diff(level)
    jumps = tokens[1:] <= padded_to
    if padded_to:
        jumps = jumps | _jumps(tokens, level)
    heights = np.where(jumps, rises, 0.0)
    smooth = level - np.concatenate([[0.0], np.cumsum(heights)])
    kept = _corners(tokens, smooth, straight * level)
    slopes = np.diff(smooth[kept]) / np.diff(tokens[kept])
    last = _last_slope(tokens, level)
    standing = heights > 0
    return Curve(
        base_s=float(level[0]),
        knots=tuple(tokens[kept].tolist()),
        slopes_s=(*np.maximum(slopes, 0.0).tolist(), last),
        jumps_at=tuple(tokens[:-1][standing].tolist()),
        jumps_s=tuple(heights[standing].tolist()),
    )


def levelled(seconds: Floats) -> Floats:
    """The nearest values, by squares, that never fall (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in seconds.tolist():
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])


def _jumps(tokens: Floats, level: Floats) -> Bools:
    """[P - 1] which gaps between neighbours are steps."""
    rises = np.diff(level)
    slopes = rises / np.diff(tokens)
    usual = np.array(
        [np.median(slopes[max(i - AROUND, 0) : i + AROUND + 1]) for i in range(len(slopes))]
    )
    return (rises > JUMP_SHARE * level[:-1]) & (slopes > JUMP_STEEPNESS * usual)


def _corners(tokens: Floats, smooth: Floats, allowed: Floats) -> list[int]:
    """Indices of the points between which straight lines stay within `allowed` of all others."""
    kept = [0]
    while kept[-1] < len(tokens) - 1:
        start, end = kept[-1], kept[-1] + 1
        while end + 1 < len(tokens) and _is_straight(tokens, smooth, allowed, start, end + 1):
            end += 1
        kept.append(end)
    return kept


def _is_straight(tokens: Floats, smooth: Floats, allowed: Floats, start: int, end: int) -> bool:
    inside = slice(start + 1, end)
    line = np.interp(tokens[inside], tokens[[start, end]], smooth[[start, end]])
    return bool((np.abs(line - smooth[inside]) <= allowed[inside]).all())


def _last_slope(tokens: Floats, level: Floats) -> float:
    """Seconds a token over the last half: how a curve goes on behind its last point."""
    middle = int(np.searchsorted(tokens, tokens[-1] / 2))
    return float((level[-1] - level[middle]) / (tokens[-1] - tokens[middle]))
