"""Gumbel noise that is a function of (request seed, output position, token) and of nothing else.

A text then depends on its seed and the target alone, not on tree, batch or controller. SplitMix64
(Steele, Lea and Flood, OOPSLA 2014) is the hash: seed and position make the state of a stream, and
a token's noise is the stream's entry at the token's number, so that nothing is ever stored.
"""

from __future__ import annotations

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ONE = np.uint64(1)


@njit(cache=True)
def _mix(z: np.uint64) -> np.uint64:
    """SplitMix64's finaliser."""
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def stream(seed: int, position: int) -> np.uint64:
    """State of the stream of one output position (0 is the request's first token)."""
    start = _mix(np.uint64(seed) + GOLDEN)
    return _mix(start + GOLDEN * (np.uint64(position) + ONE))


@njit(cache=True)
def uniform(state: np.uint64, token: int) -> float:
    """The stream's number for a token, inside (0, 1), in steps of 2^-52."""
    bits = _mix(state + GOLDEN * (np.uint64(token) + ONE)) >> np.uint64(12)
    return (np.float64(bits) + 0.5) * 2.0**-52


@njit(cache=True)
def gumbel(u: float) -> float:
    """Standard Gumbel noise of a uniform number; rises with it."""
    return -np.log(-np.log(u))
