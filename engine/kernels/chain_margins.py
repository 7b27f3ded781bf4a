"""How decided the drafter was along its chains, and what that promises.

For `policies.adaptive_verification`, whose estimator gives weights and biases.
"""

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


@njit(cache=True)
def chances(margin: Floats, weight: Floats, bias: Floats) -> tuple[Floats, Floats]:
    """Chance of acceptance of each draft by its margin [S, K], and of all up to it, [S, K] each.

    A logistic function at every position, of `weight` and `bias` [K].
    """
    slots, steps = margin.shape
    own, survival = np.empty((slots, steps)), np.empty((slots, steps))
    for s in range(slots):
        reached = 1.0
        for k in range(steps):
            own[s, k] = 1.0 / (1.0 + math.exp(-(weight[k] * margin[s, k] + bias[k])))
            reached *= own[s, k]
            survival[s, k] = reached
    return own, survival
