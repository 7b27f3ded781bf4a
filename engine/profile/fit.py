"""Fit cost curves to timed passes: non-negative least squares on ramps and jumps.

Errors count relative to the time, since a controller compares short steps with long ones. Which
breakpoints and jumps a curve has is chosen greedily, by the Bayesian information criterion; which
form it has, pieces, stairs or both, by the same figure. Non-negative coefficients on these bases
are exactly the curves that never fall. A machine that was disturbed leaves times far too long, so
what lies far off a first fit counts less in the next (Huber's weights; Huber 1964).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import nnls

from engine.profile.blocks import Blocks
from engine.profile.cost_model import Curve
from engine.protocol import Floats

Form = Literal["pieces", "stairs", "both"]
FORMS: tuple[Form, ...] = ("pieces", "stairs", "both")
MOST_ADDED = 12  # breakpoints and jumps over all curves of a fit
# An addition often pays only together with the next one, so a worse score alone is no end.
PATIENCE = 3
# A fit whose errors are a fifth of a per cent is as good as any machine repeats itself; without
# this floor, times without noise would be followed into their last digit.
SMALLEST_ERROR = 0.002
REFITS = 3
# Errors beyond so many robust standard deviations pull no harder than one of that size (Huber's
# own constant). No error below the second is a disturbance: so far may a curve be off at a bend.
HUBER, SMALLEST_DISTURBANCE = 1.345, 0.03


class CurveData(NamedTuple):
    """P points of one curve: it enters point i `weight[i]` times, at count `x[i]`."""

    x: Floats
    weight: Floats


@dataclass(frozen=True)
class Outline:
    """Where a curve may bend and jump."""

    knots: tuple[float, ...] = ()
    """Where slopes begin; () is a curve without any."""
    jumps: tuple[float, ...] = ()


@dataclass
class Fitted:
    """Curves and linear coefficients, in the order of what was given to `fit`."""

    curves: list[Curve]
    linear: list[float]
    form: Form
    score: float = field(repr=False)
    off: Floats = field(repr=False)
    """[P] predicted over given seconds, minus 1."""


def fit(
    curves: Sequence[CurveData],
    linear: Sequence[Floats],
    seconds: Floats,
    forms: Sequence[Form] = FORMS,
    weights: Floats | None = None,
    blocks: Blocks | None = None,
) -> Fitted:
    """The best non-decreasing curves and non-negative linear terms for `seconds` [P], all > 0.

    `weights` [P] say how much each point counts; None: all alike. With `blocks`, curves whose
    counts are filled up to whole blocks are tried too, and taken unless the others fit better.
    """
    plain = _fit_forms(curves, linear, seconds, forms, weights)
    if blocks is None:
        return plain
    filled = [CurveData(blocks.filled(data.x), data.weight) for data in curves]
    blocked = _fit_forms(filled, linear, seconds, forms, weights)
    blocked.curves = [blocks.stairs(curve) for curve in blocked.curves]
    return min(blocked, plain, key=lambda fitted: fitted.score)


def _fit_forms(
    curves: Sequence[CurveData],
    linear: Sequence[Floats],
    seconds: Floats,
    forms: Sequence[Form],
    weights: Floats | None,
) -> Fitted:
    """The best form, refitted with less weight on what lies far off."""
    given = np.ones(len(seconds)) if weights is None else weights
    counting = given
    for _ in range(1 + REFITS):
        fits = [_fit_form(curves, linear, seconds, counting, form) for form in forms]
        best = min(fits, key=lambda fitted: fitted.score)
        counting = given * _huber(best.off)
    return best


def _huber(off: Floats) -> Floats:
    """[P] 1 for what was met, less the farther a point lies off."""
    deviation = 1.4826 * float(np.median(np.abs(off)))
    limit = max(HUBER * deviation, SMALLEST_DISTURBANCE)
    return limit / np.maximum(np.abs(off), limit)


def _fit_form(
    curves: Sequence[CurveData],
    linear: Sequence[Floats],
    seconds: Floats,
    weights: Floats,
    form: Form,
) -> Fitted:
    outlines = [Outline() if form == "stairs" else Outline((0.0,)) for _ in curves]
    best = _solve(curves, linear, seconds, weights, outlines, form)
    in_vain = 0
    for _ in range(min(MOST_ADDED, len(seconds) // 3)):
        tried = [
            (_solve(curves, linear, seconds, weights, option, form), option)
            for option in _additions(curves, outlines, form)
        ]
        if not tried or in_vain == PATIENCE:
            break
        current, outlines = min(tried, key=lambda pair: pair[0].score)
        in_vain = 0 if current.score < best.score else in_vain + 1
        best = min(best, current, key=lambda fitted: fitted.score)
    return best


def _additions(
    curves: Sequence[CurveData], outlines: list[Outline], form: Form
) -> Iterator[list[Outline]]:
    """Every outline with one breakpoint or jump more."""
    for index, (data, outline) in enumerate(zip(curves, outlines, strict=True)):
        xs = np.unique(data.x[data.weight > 0])
        options: list[Outline] = []
        if form != "stairs":
            new = [float(x) for x in xs[1:-1] if float(x) not in outline.knots]
            options += [replace(outline, knots=tuple(sorted((*outline.knots, x)))) for x in new]
        if form != "pieces":
            between = [float(x) for x in (xs[1:] + xs[:-1]) / 2]
            new = [x for x in between if x not in outline.jumps]
            options += [replace(outline, jumps=tuple(sorted((*outline.jumps, x)))) for x in new]
        for option in options:
            yield [*outlines[:index], option, *outlines[index + 1 :]]


def _solve(
    curves: Sequence[CurveData],
    linear: Sequence[Floats],
    seconds: Floats,
    weights: Floats,
    outlines: Sequence[Outline],
    form: Form,
) -> Fitted:
    """Weighted non-negative least squares for given outlines, with its score."""
    columns = [
        column
        for data, outline in zip(curves, outlines, strict=True)
        for column in _columns(data, outline)
    ]
    matrix = np.stack([*columns, *linear], axis=1) / seconds[:, None]
    root = np.sqrt(weights / weights.sum())
    weighted = matrix * root[:, None]
    scale = np.maximum(np.linalg.norm(weighted, axis=0), 1e-300)
    values, residual = nnls(weighted / scale, root)
    values = values / scale
    n = len(seconds)
    placed = sum(len(outline.knots) + len(outline.jumps) for outline in outlines)
    parameters = int((values > 0).sum()) + placed
    error = residual**2 + SMALLEST_ERROR**2
    fitted, at = [], 0
    for outline in outlines:
        width = 1 + len(outline.knots) + len(outline.jumps)
        fitted.append(_curve(outline, values[at : at + width]))
        at += width
    score = n * np.log(error) + parameters * np.log(n)
    return Fitted(fitted, values[at:].tolist(), form, float(score), matrix @ values - 1.0)


def _columns(data: CurveData, outline: Outline) -> Iterator[Floats]:
    """What each coefficient of the curve is multiplied with: base, slopes, jumps."""
    x, weight = data
    yield weight
    for start, end in zip(outline.knots, (*outline.knots, np.inf)[1:], strict=True):
        yield weight * np.clip(x - start, 0.0, end - start)
    for at in outline.jumps:
        yield weight * (x > at)


def _curve(outline: Outline, values: Floats) -> Curve:
    """The curve of these coefficients; jumps of no height are left out."""
    slopes = values[1 : 1 + len(outline.knots)].tolist()
    heights = values[1 + len(outline.knots) :].tolist()
    jumps = [(at, h) for at, h in zip(outline.jumps, heights, strict=True) if h > 0]
    return Curve(
        base_s=float(values[0]),
        knots=outline.knots or (0.0,),
        slopes_s=tuple(slopes) or (0.0,),
        jumps_at=tuple(at for at, _ in jumps),
        jumps_s=tuple(h for _, h in jumps),
    )
