"""Twin of `engine.sampling.noise`: SplitMix64 in unbounded integers."""

from __future__ import annotations

import math

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def uniform(seed: int, position: int, token: int) -> float:
    """Number inside (0, 1) that belongs to a token at an output position."""
    start = _mix((seed + GOLDEN) & WORD)
    state = _mix((start + GOLDEN * (position + 1)) & WORD)
    return ((_mix((state + GOLDEN * (token + 1)) & WORD) >> 12) + 0.5) / 2**52


def gumbel(seed: int, position: int, token: int) -> float:
    """Its Gumbel noise."""
    return -math.log(-math.log(uniform(seed, position, token)))
