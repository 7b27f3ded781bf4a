"""Intervals as small pictures in a table's cell: a line from end to end, a dot at the value.

All of a column share a scale, so that a reader sees at once what overlaps. Plain SVG, which needs
no script and prints; where zero lies within the scale of a difference, a tick marks it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape

from eval.report.blocks import Figure
from eval.report.palette import Palette

WIDE, HIGH, EDGE = 108, 18, 5


def scale_of(figures: Iterable[Figure], from_zero: bool = False) -> tuple[float, float]:
    """The least and most that a column's strips show; (0, 1) where nothing is known."""
    ends = [
        end
        for figure in figures
        for end in (figure.value, figure.low, figure.high)
        if math.isfinite(end)
    ]
    if from_zero:
        ends.append(0.0)
    if not ends:
        return 0.0, 1.0
    low, high = min(ends), max(ends)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def strips(
    figures: Mapping[str, Figure], scale: tuple[float, float], palette: Palette, wide: int = 112
) -> str:
    """All controllers of a row below one another, each in a lane of its own."""
    lane = 6.0 if len(figures) <= 6 else 3.6
    high = lane * len(figures) + 4
    low, most = scale
    parts = []

    def x(value: float) -> float:
        return 4 + (value - low) / (most - low) * (wide - 8)

    for i, (name, figure) in enumerate(figures.items()):
        if not figure.is_known:
            continue
        y, colour = 2 + lane * (i + 0.5), palette.look(name).colour
        if figure.has_interval:
            parts.append(
                f'<path d="M{x(figure.low):.1f} {y:.1f}H{x(figure.high):.1f}" stroke="{colour}" '
                'stroke-width="1.6" stroke-opacity="0.55"/>'
            )
        parts.append(f'<circle cx="{x(figure.value):.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>')
    told = ", ".join(f"{name} {figure.value:.3g}" for name, figure in figures.items())
    return (
        f'<svg class="strips" viewBox="0 0 {wide} {high:g}" width="{wide}" height="{high:g}" '
        f'role="img" aria-label="{escape(told)}">{"".join(parts)}</svg>'
    )


def strip(figure: Figure, scale: tuple[float, float], colour: str, with_zero: bool = False) -> str:
    """SVG of one figure; empty where nothing is known."""
    if not figure.is_known:
        return ""
    low, high = scale

    def x(value: float) -> float:
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return EDGE + share * (WIDE - 2 * EDGE)

    middle = HIGH / 2
    parts = []
    if with_zero and low <= 0 <= high:
        parts.append(f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{HIGH}"/>')
    if figure.has_interval:
        parts.append(
            f'<line x1="{x(figure.low):.1f}" x2="{x(figure.high):.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="{colour}" stroke-width="3" stroke-linecap="round" stroke-opacity="0.45"/>'
        )
    parts.append(f'<circle cx="{x(figure.value):.1f}" cy="{middle}" r="4" fill="{colour}"/>')
    return (
        f'<svg class="strip" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )
