"""Top-p's threshold, exact and without a sort: a few passes over a row, rows in parallel.

Which tokens are likeliest does not matter, only at which level their run ends. One pass adds up
all probability; a second keeps the tokens near the likeliest, outside of which the end of the run
cannot lie; those are spread over buckets by level, and the search goes on in the one bucket in
which the wanted share is reached, until a single level is left there.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from engine.protocol import Floats, Ints
from engine.sampling.exponential import exp

BUCKETS = 1024
SLACK = 1.0  # added to a bound, in temperatures, so that rounding cannot break it


@njit(cache=True, parallel=True)
def cut_nuclei(
    levels: Floats,  # [n, vocabulary], no NaN
    highest: Floats,  # [n] row maxima
    temperature: Floats,  # [n] above 0
    top_p: Floats,  # [n] rows of 1 are left as they are
    top_k: Ints,  # [n] rows above 0 are left as they are
    floor: Floats,  # [n], raised
) -> None:
    """Raise floors to the last level of the shortest run of likeliest tokens that reaches top_p."""
    for i in prange(len(floor)):
        if top_p[i] < 1.0 and top_k[i] == 0 and np.isfinite(highest[i]):
            end = nucleus_end(levels[i], highest[i], temperature[i], top_p[i])
            floor[i] = max(floor[i], end)


@njit(cache=True, error_model="numpy")
def nucleus_end(levels: Floats, highest: float, temperature: float, top_p: float) -> float:
    """The level of the likeliest tokens' run at which their probability reaches top_p < 1."""
    # V tokens that far below the likeliest have V e^-reach = 1 - p of its weight: less than 1 - p
    # of all weight, so that the run ends before them.
    reach = np.log(len(levels) / (1.0 - top_p)) + SLACK
    near = _at_least(levels, highest - temperature * reach)
    weight = np.empty_like(near)
    for j in range(len(near)):
        weight[j] = exp((near[j] - highest) / temperature)
    return _end_of_share(near, weight, top_p * _weight_of_all(levels, highest, temperature))


@njit(cache=True, fastmath={"reassoc", "nsz"}, error_model="numpy")
def _weight_of_all(levels: Floats, highest: float, temperature: float) -> float:
    """Sum of unnormalised probabilities, 1 for the likeliest; sums in any order, to vectorize."""
    total = 0.0
    for v in range(len(levels)):
        total += exp((np.float64(levels[v]) - highest) / temperature)
    return total


@njit(cache=True)
def _at_least(levels: Floats, edge: float) -> Floats:
    """The levels from `edge` on, in the order of their tokens."""
    count = 0
    for v in range(len(levels)):
        count += levels[v] >= edge
    kept, at = np.empty(count), 0
    for v in range(len(levels)):
        if levels[v] >= edge:
            kept[at] = levels[v]
            at += 1
    return kept


@njit(cache=True, error_model="numpy")
def _end_of_share(level: Floats, weight: Floats, wanted: float) -> float:
    """The highest level down to which the weights add up to `wanted`; the lowest if none does.

    `level` and `weight` [m], m at least 1, serve as scratch.
    """
    m, above = len(level), 0.0  # tokens still searched, and the weight over them
    pile = np.empty(BUCKETS)
    while True:
        low, high = level[0], level[0]
        for j in range(1, m):
            low, high = min(low, level[j]), max(high, level[j])
        scale = (BUCKETS - 1) / (high - low)
        if not 0.0 < scale < np.inf:
            return low  # a single level, or none that numbers can tell apart
        pile[:] = 0.0
        for j in range(m):
            pile[int((high - level[j]) * scale)] += weight[j]
        bucket, last = 0, int((high - low) * scale)
        while bucket < last and above + pile[bucket] < wanted:
            above += pile[bucket]
            bucket += 1
        left = 0
        for j in range(m):
            if int((high - level[j]) * scale) == bucket:
                level[left], weight[left] = level[j], weight[j]
                left += 1
        m = left
