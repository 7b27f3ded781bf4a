"""The order of positive numbers, the largest first, in time that grows with their count alone.

Controllers order hundreds of node values in every decision, for which Numba's own stable sort takes
several times as long: there, every comparison is a branch that nobody can foresee.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints


@njit(cache=True)
def descending(values: Floats) -> Ints:
    """[n] indices of `values` [n], none below 0 or NaN; equal ones stay as they stood.

    They are dealt into about as many buckets, what is left is sorted by insertion: quick as long as
    the values spread over their octaves, as those of nodes do.
    """
    count = len(values)
    order = np.arange(count)
    if count < 2:
        return order
    # The bits of floats from 0 on, read as whole numbers, rise as the floats do.
    keys = values.view(np.int64)
    most = keys.max()
    span = most - keys.min()
    shift = 0
    while span >> shift > count:
        shift += 1
    place = np.zeros((span >> shift) + 2, np.int64)
    for key in keys:
        place[((most - key) >> shift) + 1] += 1
    for bucket in range(1, len(place)):
        place[bucket] += place[bucket - 1]
    for i in range(count):
        bucket = (most - keys[i]) >> shift
        order[place[bucket]] = i
        place[bucket] += 1
    for last in range(1, count):
        index, at = order[last], last
        while at > 0 and keys[order[at - 1]] < keys[index]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = index
    return order
