"""How decided the drafter was along its chains, for `policies.adaptive_verification`."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints


@njit(cache=True, error_model="numpy")
def chain_margins(size: Ints, probability: Floats, steps: int, least: float, most: float) -> Floats:
    """ln(q / (1 − q)) [S, steps] of the first `size` [S] drafts of chains; of others, anything.

    q is a draft's own chance, the quotient of its path probability [S, N] and the one before,
    held between `least` and `most`.
    """
    slots, drafts = probability.shape
    margin = np.empty((slots, steps))
    for s in range(slots):
        before = 1.0
        for k in range(steps):
            reached = probability[s, k] if k < min(size[s], drafts) else 1.0
            chance = min(max(reached / before, least), most)
            margin[s, k] = math.log(chance) - math.log1p(-chance)
            before = reached
    return margin
