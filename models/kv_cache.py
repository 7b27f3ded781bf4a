"""Keys and values of past tokens, one fixed row range per slot.

A slot is one request's place in the batch. The candidate tree's keys and values are written
behind the slot's context; `move` brings the accepted ones to the front once the target has
spoken. Which rows belong to whom is the caller's bookkeeping.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TokenBatch(NamedTuple):
    """T tokens of several slots that go through a network together.

    The tokens of one slot stand side by side; `slots` covers the range [first_slot, end_slot).
    """

    tokens: Tensor  # [T] int64
    positions: Tensor  # [T] int64, rotary position (context length + depth in the tree)
    slots: Tensor  # [T] int64, slot of each token
    rows: Tensor  # [T] int64, row of the slot's cache that the token writes
    offsets: Tensor  # [T] int64, index of the token among its slot's tokens in this batch
    mask: Tensor  # [end - first, Q, L] bool: which cache rows a token may attend to
    first_slot: int
    end_slot: int


class KVCache:
    """Keys and values [layers, slots, kv_heads, capacity, head_dim]."""

    def __init__(
        self,
        layers: int,
        slots: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
    ) -> None:
        shape = (layers, slots, kv_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)
        self.capacity = capacity

    def write(self, layer: int, batch: TokenBatch, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] in the rows that `batch` names."""
        self.keys[layer][batch.slots, :, batch.rows] = keys
        self.values[layer][batch.slots, :, batch.rows] = values

    def move(self, slots: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy row sources[i] of slot slots[i] to row targets[i], in every layer at once."""
        self.keys[:, slots, :, targets] = self.keys[:, slots, :, sources]
        self.values[:, slots, :, targets] = self.values[:, slots, :, sources]

    def bytes_per_token(self) -> int:
        """Bytes that one row costs over all layers."""
        layers, _, kv_heads, _, head_dim = self.keys.shape
        return 2 * layers * kv_heads * head_dim * self.keys.element_size()
