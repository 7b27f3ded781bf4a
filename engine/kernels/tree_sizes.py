"""Trees by a signal between 0 and 1, and what it is made of, for `policies.adaptivespec`."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def tree_sizes(
    confidence: Floats,
    agreement: Floats,
    weight: float,
    ends: Ints,
    most: Ints,
    since_proposed: Ints,
    probe: int,
) -> Ints:
    """Depth, width and nodes [3, S] at the signal of each slot.

    The signal is `weight` · confidence [S] + (1 − `weight`) · agreement [S]; where there is no
    confidence (NaN), agreement alone. A size lies between its `ends` [2, 3] in step with the
    signal, halves go to the even one, and is at most `most` [3]. All are 1 where the depth comes to
    0 and position 1 was not offered for `probe` iterations (`since_proposed` [S]).
    """
    slots = len(confidence)
    sizes = np.empty((3, slots), np.int64)
    for s in range(slots):
        sure = agreement[s] if np.isnan(confidence[s]) else confidence[s]
        signal = weight * sure + (1.0 - weight) * agreement[s]
        for k in range(3):
            low, high = ends[0, k], ends[1, k]
            sizes[k, s] = min(low + np.int64(np.rint(signal * (high - low))), most[k])
        if sizes[0, s] == 0 and since_proposed[s] >= probe:
            sizes[:, s] = 1
    return sizes


@njit(cache=True)
def feed_shares(
    here: Bools, proposed: Bools, accepted: Bools, memory: float, average: Floats
) -> tuple[float, int]:
    """Feed rolling averages [S], NaN before the first share; returns shares summed and counted.

    A share is accepted / proposed positions [S, D] of a slot that is `here` [S] and had some
    proposed; `memory` is the weight of the past.
    """
    total, count = 0.0, 0
    for s in range(len(here)):
        offered = kept = 0
        for d in range(proposed.shape[1]):
            offered += proposed[s, d]
            kept += accepted[s, d]
        if here[s] and offered > 0:
            share = kept / offered
            old = average[s]
            average[s] = share if np.isnan(old) else memory * old + (1.0 - memory) * share
            total += share
            count += 1
    return total, count
