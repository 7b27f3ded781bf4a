"""Live against replay as a picture: one panel a figure, one dot a case and controller.

A dot on the diagonal is equal on both; the band is the figure's own bar; the line through a dot
reaches as far as live runs lie apart. Hollow dots are told and not judged. Self-contained SVG that
follows the reader's light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eval.fidelity.course import Told
from eval.fidelity.figures import BARS
from eval.svg import COLOURS, document, dot, line, text

SIDE, GAP, LEFT, TOP, ACROSS = 210, 70, 64, 92, 3
ROOM = 1.1  # of the axes over the largest value
IN_MS = ("TPOT", "TTFT", "time")


def draw(lines: Sequence[Told], title: str) -> str:
    """One SVG document; figures without a line are left out."""
    figures = [name for name in BARS if any(told.line.figure == name for told in lines)]
    names = list(dict.fromkeys(told.controller for told in lines))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    rows = -(-len(figures) // ACROSS)
    wide, high = LEFT + ACROSS * (SIDE + GAP), TOP + rows * (SIDE + GAP)
    parts = [text(24, 32, title, 17, "start"), *_legend(colours)]
    for i, figure in enumerate(figures):
        x, y = LEFT + i % ACROSS * (SIDE + GAP), TOP + i // ACROSS * (SIDE + GAP)
        shown = [told for told in lines if told.line.figure == figure]
        parts.extend(_panel(x, y, figure, shown, colours))
    return document(wide, high, title, parts)


def _legend(colours: dict[str, str]) -> Iterator[str]:
    x = 30.0
    for name, colour in colours.items():
        yield dot(x, 54, colour)
        yield text(x + 10, 58, name, 12, "start")
        x += 34 + 7 * len(name)


def _panel(
    x: float, y: float, figure: str, lines: Sequence[Told], colours: dict[str, str]
) -> Iterator[str]:
    """Axes, the bar's band, the dots."""
    unit = 1e3 if any(word in figure for word in IN_MS) else 1.0
    ends = [max(t.line.live * (1 + t.line.noise / 2), t.line.replay) * unit for t in lines]
    most = ROOM * max([*ends, 1e-12])
    scale, floor, bar = SIDE / most, y + SIDE, BARS[figure]
    if bar < 1:
        corners = [(0.0, 0.0), (SIDE / (1 + bar), SIDE), (SIDE, SIDE), (SIDE, SIDE * (1 - bar))]
        points = " ".join(f"{x + a:.1f},{floor - b:.1f}" for a, b in corners)
        yield f'<polygon points="{points}" fill-opacity="0.12"/>'
    yield (
        f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" fill="none" '
        f'stroke="currentColor" stroke-opacity="0.5"/><line x1="{x}" y1="{floor}" '
        f'x2="{x + SIDE}" y2="{y}" stroke="currentColor" stroke-opacity="0.4"/>'
    )
    for value in _round_values(most):
        yield text(x + scale * value, floor + 15, f"{value:g}", 11, "middle")
        yield text(x - 6, floor - scale * value + 4, f"{value:g}", 11, "end")
    yield text(x, y - 8, figure + (" (ms)" if unit > 1 else ""), 13, "start")
    yield text(x + SIDE - 6, floor - 7, "live →", 11, "end")
    yield text(x + 6, y + 16, "↑ replay", 11, "start")
    for told in lines:
        yield from _dot(x, floor, scale * unit, told, colours[told.controller])


def _round_values(most: float) -> list[float]:
    """Three to six values from 0 on, in steps of 1, 2 or 5 times a power of ten."""
    step = 10.0 ** math.floor(math.log10(most))
    while most / step < 2:
        step /= 2 if f"{step:e}"[0] in "12" else 2.5
    while most / step >= 5:
        step *= 2.5 if f"{step:e}"[0] == "2" else 2
    return [round(step * i, 12) for i in range(int(most / step) + 1)]


def _dot(x: float, floor: float, scale: float, told: Told, colour: str) -> Iterator[str]:
    shown = told.line
    at, up, reach = x + scale * shown.live, floor - scale * shown.replay, shown.noise / 2
    low, high = at - scale * shown.live * reach, at + scale * shown.live * reach
    yield line(low, up, high, up, colour, 1.5)
    words = f"{told.case}, {told.controller}: {shown.error:+.1%}"
    yield dot(at, up, colour, words, is_hollow=not told.judged)
