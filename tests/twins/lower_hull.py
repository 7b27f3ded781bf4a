"""Twin of `engine.kernels.paying.lower_hull`: a corner is what no line between others is below."""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[float, float]


def lower_hull(points: Sequence[Point]) -> list[Point]:
    """Corners of the largest convex curve that is nowhere above the points; x ascends."""
    return [
        point
        for i, point in enumerate(points)
        if not any(_covers(a, point, b) for a in points[:i] for b in points[i + 1 :])
    ]


def _covers(a: Point, point: Point, b: Point) -> bool:
    """Whether the line from a to b is at the point, or below it."""
    return (b[1] - a[1]) * (point[0] - a[0]) <= (point[1] - a[1]) * (b[0] - a[0])
