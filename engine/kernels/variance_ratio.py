"""How steady a course of numbers has lately been: its recent variance over its longer one.

The measure of `policies.dsde`, whose docstring says where it comes from and what it is for. A
history is written round and round, so its entries stand in no order but that of their ages.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints

STILL, STILL_RATIO = 1e-6, 20.0
"""Below such a variance nothing moves, and the ratio is set."""


@njit(cache=True)
def variance_ratio(history: Floats, count: Ints, short: int, decay: float) -> Floats:
    """WVIR [n] of histories [n, N] into which `count` [n] entries were written, round and round."""
    courses, size = history.shape
    ages = np.empty((courses, size), np.int64)
    long, latest = np.empty(courses, np.int64), np.empty(courses, np.int64)
    for c in range(courses):
        long[c] = min(count[c], size)
        latest[c] = max(long[c] * short // size, 1)
        for i in range(size):
            ages[c, i] = (count[c] - 1 - i) % size
    whole = weighted_variance(history, ages, long, decay)
    recent = weighted_variance(history, ages, latest, decay)
    ratio = np.zeros(courses)
    for c in range(courses):
        if count[c] >= 2:
            ratio[c] = STILL_RATIO if whole[c] < STILL else recent[c] / whole[c]
    return ratio


@njit(cache=True)
def weighted_variance(history: Floats, ages: Ints, window: Ints, decay: float) -> Floats:
    """Variance [n] of the entries of history [n, N] that are younger than `window` [n].

    `ages` [n, N] of [0, N): 0 is the newest, which weighs most. A window of nothing has none.
    """
    courses, size = history.shape
    weights = decay ** np.arange(size)
    variance = np.zeros(courses)
    for c in range(courses):
        total = mean = 0.0
        for i in range(size):
            if ages[c, i] < window[c]:
                total += weights[ages[c, i]]
                mean += weights[ages[c, i]] * history[c, i]
        if total > 0.0:
            mean /= total
            for i in range(size):
                if ages[c, i] < window[c]:
                    variance[c] += weights[ages[c, i]] * (history[c, i] - mean) ** 2
            variance[c] /= total
    return variance
