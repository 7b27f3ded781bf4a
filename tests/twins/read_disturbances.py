"""Twin of `engine.workload.disturbance_kernel.read_disturbances` for one replica and one kind."""

from __future__ import annotations

from collections.abc import Sequence


def read_disturbance(
    points_s: Sequence[float], level: Sequence[float], slope: Sequence[float], clock_s: float
) -> float:
    """The value on the last piece that has begun, looked up from the start."""
    last = 0
    for i, point_s in enumerate(points_s):
        if point_s <= clock_s:
            last = i
    return level[last] + slope[last] * max(clock_s - points_s[last], 0.0)
