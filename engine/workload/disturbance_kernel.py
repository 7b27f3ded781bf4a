"""Read the disturbances of many replicas at their own clocks."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.inner import INNER
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
    for r in range(len(cursor)):
        cursor[r] = seek(schedule, r, clock_s[r], cursor[r])
        for k in range(values.shape[1]):
            values[r, k] = value_at(schedule, r, clock_s[r], cursor[r], k)


@njit(**INNER)
def seek(schedule: Schedule, r: int | np.int64, clock_s: float, start: int) -> int:
    """The change point of replica r that holds at a time, looked for from `start` on."""
    points_s = schedule.points_s[r]
    i = 0 if clock_s < points_s[start] else start
    while i + 1 < len(points_s) and points_s[i + 1] <= clock_s:
        i += 1
    return i


@njit(**INNER)
def value_at(schedule: Schedule, r: int | np.int64, clock_s: float, i: int, k: int) -> float:
    """The value of kind k, of COLUMNS, at a time at which change point i holds."""
    past_s = max(clock_s - schedule.points_s[r, i], 0.0)
    level: float = schedule.level[r, i, k] + schedule.slope[r, i, k] * past_s
    return level
