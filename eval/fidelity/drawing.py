"""Live against replay as a picture: one panel a figure, one dot a case and controller.

A dot on the diagonal is equal on both; the band is the figure's own bar; the line through a dot
reaches as far as live runs lie apart. Hollow dots are told and not judged. Self-contained SVG that
follows the reader's light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from eval.fidelity.course import Told
from eval.fidelity.figures import BARS

SIDE, GAP, LEFT, TOP, ACROSS = 210, 70, 64, 92, 3
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which the colour-blind tell apart on light and on dark."""
STYLE = (
    "svg{color:#1c1c1c;background:#fff;font-family:system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e6e6;background:#16181c}}"
)
ROOM = 1.1  # of the axes over the largest value
IN_MS = ("TPOT", "TTFT", "time")


def draw(lines: Sequence[Told], title: str) -> str:
    """One SVG document; figures without a line are left out."""
    figures = [name for name in BARS if any(told.line.figure == name for told in lines)]
    names = list(dict.fromkeys(told.controller for told in lines))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    rows = -(-len(figures) // ACROSS)
    wide, high = LEFT + ACROSS * (SIDE + GAP), TOP + rows * (SIDE + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" '
        f'aria-label="{escape(title)}" fill="currentColor"><style>{STYLE}</style>',
        _text(24, 32, title, 17, "start"),
        *_legend(colours),
    ]
    for i, figure in enumerate(figures):
        x, y = LEFT + i % ACROSS * (SIDE + GAP), TOP + i // ACROSS * (SIDE + GAP)
        shown = [told for told in lines if told.line.figure == figure]
        parts.extend(_panel(x, y, figure, shown, colours))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(colours: dict[str, str]) -> Iterator[str]:
    x = 30.0
    for name, colour in colours.items():
        yield f'<circle cx="{x}" cy="54" r="4.5" fill="{colour}"/>'
        yield _text(x + 10, 58, name, 12, "start")
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
        yield _text(x + scale * value, floor + 15, f"{value:g}", 11, "middle")
        yield _text(x - 6, floor - scale * value + 4, f"{value:g}", 11, "end")
    yield _text(x, y - 8, figure + (" (ms)" if unit > 1 else ""), 13, "start")
    yield _text(x + SIDE - 6, floor - 7, "live →", 11, "end")
    yield _text(x + 6, y + 16, "↑ replay", 11, "start")
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
    line = told.line
    at, up, reach = x + scale * line.live, floor - scale * line.replay, line.noise / 2
    low, high = at - scale * line.live * reach, at + scale * line.live * reach
    yield (
        f'<line x1="{low:.1f}" y1="{up:.1f}" x2="{high:.1f}" y2="{up:.1f}" stroke="{colour}" '
        'stroke-width="1.5"/>'
    )
    inside = colour if told.judged else "none"
    words = f"{told.case}, {told.controller}: {line.error:+.1%}"
    yield (
        f'<circle cx="{at:.1f}" cy="{up:.1f}" r="4.5" fill="{inside}" stroke="{colour}" '
        f'stroke-width="1.5"><title>{escape(words)}</title></circle>'
    )


def _text(x: float, y: float, words: str, size: float, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )
