"""Attention for one token a slot over contexts of different lengths, without padding.

Generating training data decodes about a hundred slots at once, each at its own length; padding
all of them to the longest would double the memory that is read, which is what decoding costs.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kv_cache import KVCache


@njit(cache=True, fastmath=True)
def _attend(
    query: NDArray[np.float32],  # [S, kv_heads, groups, head_dim]
    keys: NDArray[np.float32],  # [S, kv_heads, capacity, head_dim]
    values: NDArray[np.float32],
    lengths: NDArray[np.int64],  # [S] rows that the slot's token may attend to
    mixed: NDArray[np.float32],  # [S, kv_heads, groups, head_dim], written
) -> None:
    n_slots, kv_heads, groups, head_dim = query.shape
    scale = np.float32(1.0 / np.sqrt(head_dim))
    weights = np.empty((groups, keys.shape[2]), np.float32)
    for slot in range(n_slots):
        for head in range(kv_heads):
            for group in range(groups):
                largest = np.float32(-1e30)
                for row in range(lengths[slot]):
                    score = np.float32(0)
                    for d in range(head_dim):
                        score += query[slot, head, group, d] * keys[slot, head, row, d]
                    weights[group, row] = score * scale
                    largest = max(largest, score * scale)
                total = np.float32(0)
                for row in range(lengths[slot]):
                    weights[group, row] = np.exp(weights[group, row] - largest)
                    total += weights[group, row]
                mixed[slot, head, group, :] = 0
                for row in range(lengths[slot]):
                    share = weights[group, row] / total
                    for d in range(head_dim):
                        mixed[slot, head, group, d] += share * values[slot, head, row, d]


class RaggedAttention:
    """Stands in for `AttentionPlan` when every slot feeds exactly one token (float32)."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths.numpy()

    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [S, heads, head_dim] to mixed values [S, heads * head_dim]."""
        keys, values = cache.keys[layer, first:end], cache.values[layer, first:end]
        n_slots, heads, head_dim = query.shape
        kv_heads = keys.shape[1]
        folded = query.reshape(n_slots, kv_heads, heads // kv_heads, head_dim)
        mixed = torch.empty_like(folded)
        _attend(folded.numpy(), keys.numpy(), values.numpy(), self.lengths, mixed.numpy())
        return mixed.view(n_slots, heads * head_dim)
