"""The least that a further node can cost on average, from each size of a verification on.

Prices by size may rise in stairs, so the next node's own price says little: behind a dear one many
may be free. What bounds every longer prefix from below is the slope of the lower convex hull.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats


@njit(cache=True, error_model="numpy")
def least_price(price: Floats) -> Floats:
    """[K + 1] of min over j > i of (price[j] - price[i]) / (j - i); inf for the last.

    `price` is [K + 1]. One pass from the right, which keeps the hull of what lies behind.
    """
    count = len(price)
    least = np.full(count, np.inf)
    following = np.empty(count, np.int64)  # the next corner of the hull that begins here
    for i in range(count - 2, -1, -1):
        corner = i + 1
        slope = price[corner] - price[i]
        while corner < count - 1:
            further = (price[following[corner]] - price[i]) / (following[corner] - i)
            if further > slope:
                break
            corner, slope = following[corner], further
        following[i], least[i] = corner, slope
    return least
