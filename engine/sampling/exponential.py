"""e^x in float64 as plain arithmetic, so that the compiler can take several tokens at once.

A call of the mathematics library for every token of a vocabulary would cost a multiple. Nothing
here assumes that numbers are finite: NaN stays NaN.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

LOG2_E = 1 / math.log(2.0)
# ln 2 in two parts: a whole number of at most ten bits times the first is exact (Cody and Waite).
LN2_HIGH = 6.93145751953125e-1
LN2_LOW = 1.42860682030941723212e-6
# Taylor on |f| ≤ ln 2 / 2: the thirteenth power would add less than half a unit of the last place.
TERMS = tuple(1.0 / math.factorial(n) for n in range(13))
C0, C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12 = TERMS
LOWEST = -708.0  # e^-708 is about the smallest normal number
MANTISSA_BITS, EXPONENT_BIAS = 52, 1023


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exp(x: float) -> float:
    """e^x for x ≤ 709, within three units of the last place; e^-708 stands for all below it."""
    x = max(x, LOWEST)
    whole = np.floor(x * LOG2_E + 0.5)
    f = x - whole * LN2_HIGH - whole * LN2_LOW
    series = C8 + f * (C9 + f * (C10 + f * (C11 + f * C12)))
    series = C4 + f * (C5 + f * (C6 + f * (C7 + f * series)))
    series = C0 + f * (C1 + f * (C2 + f * (C3 + f * series)))
    exponent = np.int64(np.int32(whole)) + EXPONENT_BIAS
    return series * np.int64(exponent << MANTISSA_BITS).view(np.float64)
