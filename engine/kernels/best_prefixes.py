"""How far to verify each chain of a batch, for `policies.adaptive_verification`."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.descending import descending
from engine.protocol import Bools, Floats, Ints


@njit(cache=True, error_model="numpy")
def best_prefixes(survival: Floats, size: Ints, requests: int, seconds: Floats) -> Bools:
    """Which drafts [S, K] to verify, by survival [S, K] of chains of `size` [S] drafts.

    `seconds` [more than all drafts] is a step's length with 0, 1, … drafts verified; taken is the
    budget with the most tokens a second, the likeliest drafts first. Of equal rates the smaller
    budget is taken, of equal survival the earlier draft.
    """
    slots, steps = survival.shape
    chance = np.empty(size.sum())
    where = np.empty(len(chance), np.int64)
    count = 0
    for step in range(steps):  # position by position, so that the earlier of equals stands first
        for s in range(slots):
            if step < size[s]:
                chance[count], where[count] = survival[s, step], s * steps + step
                count += 1
    order = descending(chance)
    best, budget, gained = requests / seconds[0], 0, 0.0
    for i in range(count):
        gained += chance[order[i]]
        rate = (requests + gained) / seconds[i + 1]
        if rate > best:
            best, budget = rate, i + 1
    kept = np.zeros((slots, steps), np.bool_)
    for place in where[order[:budget]]:
        kept[place // steps, place % steps] = True
    return kept
