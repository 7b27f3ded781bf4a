"""Pieces of self-contained SVG pictures that follow the reader's light or dark scheme."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which the colour-blind tell apart on light and on dark."""
STYLE = (
    "svg{color:#1c1c1c;background:#fff;font-family:system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e6e6;background:#16181c}}"
)


def document(wide: float, high: float, title: str, parts: Iterable[str]) -> str:
    """One document of so many units; `parts` are its elements, the title only says what it is."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img" '
        f'aria-label="{escape(title)}" fill="currentColor"><style>{STYLE}</style>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, size: float, anchor: str) -> str:
    """Words that start, end or have their middle at x, as `anchor` says."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )


def dot(x: float, y: float, colour: str, words: str = "", is_hollow: bool = False) -> str:
    """A dot that says `words`, if there are any, under the pointer."""
    inside = "none" if is_hollow else colour
    title = f"<title>{escape(words)}</title>" if words else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{inside}" stroke="{colour}" '
        f'stroke-width="1.5">{title}</circle>'
    )
