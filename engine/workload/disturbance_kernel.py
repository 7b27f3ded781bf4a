"""Read the disturbances of many replicas at their own clocks, once a step."""

from __future__ import annotations

from numba import njit

from engine.protocol import Floats, Ints
from engine.workload.disturbances import Schedule


@njit(cache=True)
def read_disturbances(
    schedule: Schedule,
    clock_s: Floats,  # [R]
    cursor: Ints,  # [R] change point of the last reading, 0 at first
    values: Floats,  # [R, K]
) -> None:
    """Fill `values` and move `cursor`; O(K) a replica as long as its clock goes forward.

    A clock that went back (a reset, a restored snapshot) is looked up from the start.
    """
    replicas, points = schedule.points_s.shape
    for r in range(replicas):
        i = cursor[r]
        if clock_s[r] < schedule.points_s[r, i]:
            i = 0
        while i + 1 < points and schedule.points_s[r, i + 1] <= clock_s[r]:
            i += 1
        cursor[r] = i
        past_s = max(clock_s[r] - schedule.points_s[r, i], 0.0)
        for k in range(values.shape[1]):
            values[r, k] = schedule.level[r, i, k] + schedule.slope[r, i, k] * past_s
