"""How undecided a draft network is: the entropy of its softmax, straight from the logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.protocol import Floats, Ints
from models.fused import exp


@njit(cache=True, error_model="numpy")
def write_entropies(
    logits: NDArray[np.float32],  # [T, V], numbers all (`engine.kernels.best` has looked)
    slots: Ints,  # [T]
    entropy: Floats,  # [S], written: nats of the softmax over V
) -> None:
    """One entropy for every row, into the row's slot."""
    for t in range(len(slots)):
        total, weighted = _sums(logits[t], _largest(logits[t]))
        # Of p = e / total with e = exp(x): -Σ p log p = log total - Σ e x / total.
        entropy[slots[t]] = max(np.log(total) - weighted / total, 0.0)


@njit(cache=True, fastmath=True)
def _largest(row: Any) -> Any:
    largest = row[0]
    for v in range(len(row)):
        largest = max(largest, row[v])
    return largest


@njit(cache=True, fastmath=True)
def _sums(row: Any, largest: Any) -> Any:
    """Σ e and Σ e x for x = row - largest, e = exp(x)."""
    total, weighted = np.float32(0), np.float32(0)
    for v in range(len(row)):
        x = row[v] - largest
        e = exp(x)
        total += e
        weighted += e * x
    return total, weighted
