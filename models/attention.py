"""Attention of a `TokenBatch` over its slots' caches: the one place where tokens are padded.

Linear layers run over the T tokens as they are; here queries are laid out per slot, since the
slots' contexts differ. Grouped queries are folded into the query axis, so keys and values are
read once and never repeated in memory. A network is handed an `AttentionBackend` and asks it for
every pass; which there are to choose from is `models.attention_choice`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from models.kv_cache import KVCache, Place, TokenBatch
from models.layers import rotate, rotate_and_store
from models.ragged_attention import RaggedAttention
from models.upload import upload


class Attention(Protocol):
    """What a network needs of attention: mixed values for the queries of one layer."""

    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [T, heads, head_dim] to mixed values [T, heads * head_dim]."""
        ...


class StoringAttention(ABC):
    """An attention that writes the new keys and values itself."""

    @abstractmethod
    def store(self, layer: int, keys: Tensor, values: Tensor, cache: KVCache) -> None:
        """Write keys and values [T, kv_heads, head_dim] of the pass's tokens."""

    @abstractmethod
    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [T, heads, head_dim] to mixed values [T, heads * head_dim]."""


class AttentionBackend(Protocol):
    """Who plans attention for a network, pass by pass."""

    @property
    def compiled_layers(self) -> bool:
        """Whether passes over a few rows may go through `models.fused_layer` instead."""
        ...

    def plan(self, batch: TokenBatch, cache: KVCache, heads: int) -> Attention:
        """The attention of one pass over a cache, with so many query heads.

        The batch is on the host, wherever the cache is; its mask may be where the cache is.
        """
        ...


class PlainAttention:
    """Torch's own or, in float32 on a CPU, the ragged kernel: what suits the batch."""

    compiled_layers = True

    def plan(self, batch: TokenBatch, cache: KVCache, heads: int) -> Attention:
        """`plan_attention` for the cache's heads and number format, where the cache is.

        The batch is on the host. What a device needs of it is sent here, so that the pass itself
        neither copies nor waits.
        """
        groups, dtype = heads // cache.keys.shape[2], cache.keys.dtype
        if cache.keys.device.type == "cpu":
            return plan_attention(batch, groups, dtype)
        cache.send_tables()
        plan = AttentionPlan(batch, groups, dtype, cache.device)
        plan.place = cache.locate(batch.first_slot, batch.end_slot, plan.length)
        return plan


def attend_new(
    plan: Attention,
    layer: int,
    mixed: Tensor,
    heads: int,
    tables: tuple[Tensor, Tensor],
    batch: TokenBatch,
    cache: KVCache,
) -> Tensor:
    """Attention of a layer's fused product `mixed`, as `rotate_and_store` takes it, stored first.

    Mixed values [T, heads * head_dim].
    """
    if isinstance(plan, StoringAttention):
        kv_heads, head_dim = cache.keys.shape[2], cache.keys.shape[4]
        parts = mixed.view(len(mixed), -1, head_dim).split((heads, kv_heads, kv_heads), dim=1)
        at = tables[0][batch.positions], tables[1][batch.positions]
        query = rotate(parts[0], *at)
        plan.store(layer, rotate(parts[1], *at), parts[2], cache)
    else:
        query = rotate_and_store(mixed, heads, tables, batch, cache, layer)
    return plan.attend(layer, query, cache, batch.first_slot, batch.end_slot)


# Tokens a slot up to which the ragged kernel serves: the largest tree (64 nodes) and its root. A
# longer prompt is a matrix product.
RAGGED_TOKENS = 65


def plan_attention(batch: TokenBatch, groups: int, dtype: torch.dtype) -> Attention:
    """The attention that suits a batch of this machine's number format."""
    widest = batch.mask.shape[1] if batch.mask.ndim == 3 else 1
    if dtype == torch.float32 and widest <= RAGGED_TOKENS and batch.tokens.device.type == "cpu":
        return RaggedAttention(batch, groups)
    return AttentionPlan(batch, groups, dtype)


class AttentionPlan:
    """What is the same in every layer of one pass: the additive mask, the padding, the pages.

    A plan serves one pass over one cache.
    """

    def __init__(
        self,
        batch: TokenBatch,
        groups: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        """`device` is where the pass runs, None where the batch is."""
        device = device or batch.mask.device
        n_slots, width, length = batch.mask.shape
        seen = upload(batch.mask, device)
        allowed = seen.unsqueeze(1).expand(n_slots, groups, width, length)
        shape = (n_slots, 1, groups * width, length)
        self.mask = torch.zeros(shape, dtype=dtype, device=device)
        self.mask.masked_fill_(~allowed.reshape(shape), -1e30)
        self.shape = (n_slots, width)
        self.length = length
        self.dense = n_slots * width == batch.tokens.numel()
        self.local_slots, self.offsets = batch.slots - batch.first_slot, batch.offsets
        if device != batch.slots.device and not self.dense:
            padded = torch.stack((self.local_slots, self.offsets))
            self.local_slots, self.offsets = upload(padded, device).unbind()
        self.place: Place | None = None  # found in the first layer at the latest, the same in all

    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [T, heads, head_dim] to mixed values [T, heads * head_dim]."""
        total, heads, head_dim = query.shape
        n_slots, width = self.shape
        if self.place is None:
            self.place = cache.locate(first, end, self.length)
        keys, values = cache.read(layer, self.place, self.length)
        kv_heads = keys.shape[1]
        groups = heads // kv_heads
        if self.dense:
            padded = query.view(n_slots, width, heads, head_dim)
        else:
            padded = query.new_zeros(n_slots, width, heads, head_dim)
            padded[self.local_slots, self.offsets] = query
        folded = padded.view(n_slots, width, kv_heads, groups, head_dim)
        folded = folded.permute(0, 2, 3, 1, 4).reshape(n_slots, kv_heads, groups * width, head_dim)
        mixed = F.scaled_dot_product_attention(folded, keys, values, attn_mask=self.mask)
        mixed = mixed.view(n_slots, kv_heads, groups, width, head_dim)
        mixed = mixed.permute(0, 3, 1, 2, 4).reshape(n_slots, width, heads * head_dim)
        if self.dense:
            return mixed.reshape(total, heads * head_dim)
        return mixed[self.local_slots, self.offsets]
