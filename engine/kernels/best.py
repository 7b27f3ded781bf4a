"""The likeliest next tokens of a draft network, straight from its logits.

Logits must be numbers: -inf (a masked vocabulary) is refused like NaN, since no drafter here masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.protocol import Floats, Ints
from models.fused import exp


@njit(cache=True, error_model="numpy")
def best_children(
    logits: NDArray[np.float32],  # [T, V]
    ids: Ints,  # [V] the target's ids where the drafter numbers tokens otherwise, or empty
    slots: Ints,  # [T]
    places: Ints,  # [T] place in the slot's beam
    token: Ints,  # [S, W, W], written
    probability: Floats,  # [S, W, W], written: softmax over the drafter's vocabulary
) -> bool:
    """Write the W best tokens of every row, best first; False if some logit is not finite.

    Of equal logits the lower index comes first.
    """
    most = min(token.shape[2], logits.shape[1])
    best = np.empty(most, np.int64)
    for t in range(len(slots)):
        row = logits[t]
        if not np.isfinite(_sum(row)):
            return False
        found = 0
        for v in range(len(row)):
            if found == most and row[v] <= row[best[most - 1]]:
                continue
            at = found if found < most else most - 1
            while at > 0 and row[best[at - 1]] < row[v]:
                best[at] = best[at - 1]
                at -= 1
            best[at] = v
            found = min(found + 1, most)
        total = _sum_of_exponentials(row, row[best[0]])
        for i in range(token.shape[2]):
            v = best[min(i, most - 1)]
            token[slots[t], places[t], i] = ids[v] if len(ids) else v
            p = exp(row[v] - row[best[0]]) / total
            probability[slots[t], places[t], i] = p if i < most else 0.0
    return True


# Not `fastmath=True`, which would let the compiler assume that there is no NaN to be found.
@njit(cache=True, fastmath={"reassoc"})
def _sum(row: Any) -> Any:
    total = np.float32(0)
    for v in range(len(row)):
        total += row[v] * np.float32(1e-9)  # far from overflow
    return total


@njit(cache=True, fastmath=True)
def _sum_of_exponentials(row: Any, largest: Any) -> Any:
    total = np.float32(0)
    for v in range(len(row)):
        total += exp(row[v] - largest)
    return total
