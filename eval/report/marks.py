"""A controller's mark beside its name: the line and the symbol that it has in every chart."""

from __future__ import annotations

from eval.report.palette import Look

DASHED = {"solid": "", "dash": "5 3", "dot": "2 3", "dashdot": "6 2 2 2"}
SHAPES = {
    "circle": '<circle cx="11" cy="6" r="4"/>',
    "square": '<rect x="7.5" y="2.5" width="7" height="7"/>',
    "diamond": '<path d="M11 1 16 6 11 11 6 6Z"/>',
    "triangle-up": '<path d="M11 1.5 15.6 9.8H6.4Z"/>',
    "triangle-down": '<path d="M11 10.5 15.6 2.2H6.4Z"/>',
    "x": '<path d="M8 3 14 9M14 3 8 9" stroke-width="3"/>',
    "cross": '<path d="M11 2V10M7 6H15" stroke-width="3"/>',
    "star": '<path d="M11 1 12.6 4.6 16 5 13.5 7.5 14 11 11 9 8 11 8.5 7.5 6 5 9.4 4.6Z"/>',
    "pentagon": '<path d="M11 1.5 15.5 4.8 13.8 10H8.2L6.5 4.8Z"/>',
}


def mark(look: Look) -> str:
    """SVG for the line of a legend or a table."""
    return (
        f'<svg class="mark" viewBox="0 0 22 12" width="22" height="12" aria-hidden="true" '
        f'fill="{look.colour}" stroke="{look.colour}"><path d="M0 6H22" stroke-width="2" '
        f'stroke-dasharray="{DASHED[look.dash]}"/>{SHAPES[look.symbol]}</svg>'
    )
