"""The check's picture as SVG: reliability on the left, held-out rows on the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from engine.replay.synthetic.calibration import Reliability
from engine.replay.synthetic.heldout import Prediction

SIDE, TOP, LEFT, GAP = 300, 84, 60, 96
WIDTH, HEIGHT = 2 * SIDE + LEFT + GAP + 30, SIDE + TOP + 62
INK, GREY = "#1c1c1c", "#666"
COLOURS = ("#1f6fb4", "#d1622b", "#6b8f3a")
LEAST_NODES = 30  # of a bin that is shown
FONT = "system-ui, -apple-system, Segoe UI, sans-serif"


def draw(curves: dict[str, Reliability], held_out: Sequence[Prediction]) -> str:
    """One SVG document; curves by label, three at most."""
    left, right = LEFT, LEFT + SIDE + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="{FONT}" role="img" aria-label="Synthetic acceptance, checked">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="12" fill="#fbfbfa"/>',
        _text(24, 34, "Synthetic acceptance, checked", 18, weight=600),
        *_frame(left, "path probability that is shown", "share accepted", [0, 0.25, 0.5, 0.75, 1]),
        *_curves(left, curves),
        *_frame(right, "tokens an iteration, published", "predicted", [1, 2, 3, 4, 5, 6]),
        *_scatter(right, held_out),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(x: float, across: str, up: str, ticks: Sequence[float]) -> Iterable[str]:
    yield f'<rect x="{x}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="#fff" stroke="#8a8a85"/>'
    low, high = ticks[0], ticks[-1]
    for tick in ticks:
        at = SIDE * (tick - low) / (high - low)
        yield _text(x + at, TOP + SIDE + 17, f"{tick:g}", 11, GREY, "middle")
        yield _text(x - 8, TOP + SIDE - at + 4, f"{tick:g}", 11, GREY, "end")
    yield (
        f'<line x1="{x}" y1="{TOP + SIDE}" x2="{x + SIDE}" y2="{TOP}" stroke="#bbb" '
        'stroke-dasharray="4 4"/>'
    )
    yield _text(x + SIDE / 2, TOP + SIDE + 38, across, 12.5, INK, "middle")
    turned = f"rotate(-90 {x - 38} {TOP + SIDE / 2})"
    yield (
        f'<text x="{x - 38}" y="{TOP + SIDE / 2}" font-size="12.5" fill="{INK}" '
        f'text-anchor="middle" transform="{turned}">{escape(up)}</text>'
    )


def _curves(x: float, curves: dict[str, Reliability]) -> Iterable[str]:
    for n, ((label, curve), colour) in enumerate(zip(curves.items(), COLOURS, strict=False)):
        shown = curve.nodes >= LEAST_NODES
        points = [
            (x + SIDE * p, TOP + SIDE * (1 - a))
            for p, a in zip(curve.probability[shown], curve.accepted[shown], strict=True)
        ]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        for a, b in points:
            yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>'
        label = f"{label}, error {curve.ece:.1%}"
        yield _text(x + 10, TOP + 20 + 16 * n, label, 11.5, colour)


def _scatter(x: float, held_out: Sequence[Prediction]) -> Iterable[str]:
    scale = SIDE / 5.0
    for n, (label, wide) in enumerate((("chains", False), ("trees", True))):
        rows = [p for p in held_out if (p.published.tier.width > 1) == wide]
        for p in rows:
            a, b = np.clip([p.published.tokens, p.fitted], 1.0, 6.0)
            yield (
                f'<circle cx="{x + scale * (a - 1):.1f}" cy="{TOP + SIDE - scale * (b - 1):.1f}" '
                f'r="2.4" fill="{COLOURS[n]}" fill-opacity="0.6"/>'
            )
        yield _text(x + 10, TOP + 20 + 16 * n, f"{len(rows)} held-out {label}", 11.5, COLOURS[n])


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    fill: str = INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )
