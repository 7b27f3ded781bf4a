"""Random batches over paged caches: trees, beams, chains and single tokens behind random contexts.

Hypothesis draws sizes and a seed, contents come from a generator. Slots in the middle may have no
token, pages stand in random order, and rows that belong to nobody hold numbers like any other.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from models.kv_cache import KVCache, TokenBatch
from tests.paged_cache import random_tables

Kind = Literal["trees", "beams", "chains", "single"]
LAYERS = 2


class Sizes(NamedTuple):
    """What hypothesis draws."""

    kind: Kind
    slots: int
    longest_context: int
    most_tokens: int  # of a slot
    page_size: int
    kv_heads: int
    groups: int  # query heads that share a key/value head
    head_dim: int
    seed: int


class Paged(NamedTuple):
    """A pass, about to be run: the cache is full of random numbers, queries and all."""

    batch: TokenBatch
    cache: KVCache
    query: Tensor  # [T, heads, head_dim]
    keys: Tensor  # [T, kv_heads, head_dim], not yet stored
    values: Tensor
    groups: int


sizes = st.builds(
    Sizes,
    kind=st.sampled_from(get_args(Kind)),
    slots=st.integers(1, 5),
    longest_context=st.integers(0, 40),
    most_tokens=st.integers(1, 9),
    page_size=st.integers(1, 16),
    kv_heads=st.integers(1, 3),
    groups=st.integers(1, 4),
    head_dim=st.sampled_from([2, 8]),
    seed=st.integers(0, 2**32 - 1),
)


def draw_paged(size: Sizes, dtype: torch.dtype = torch.float64) -> Paged:
    """The batch and cache of these sizes."""
    rng = np.random.default_rng(size.seed)
    batch = draw_batch(size, rng)
    rows = np.zeros(batch.end_slot, np.int64)
    np.maximum.at(rows, batch.slots.numpy(), batch.rows.numpy() + 1)
    tables, pages = random_tables(rng, batch.end_slot, int(rows.max()), size.page_size)
    tables[np.arange(tables.shape[1]) >= -(-rows[:, None] // size.page_size)] = -1
    cache = KVCache(LAYERS, pages, size.kv_heads, size.page_size, size.head_dim, dtype)
    cache.use_tables(tables)
    for stored in (cache.keys, cache.values):
        stored.copy_(torch.from_numpy(rng.normal(size=stored.shape)))
    total, heads = len(batch.tokens), size.kv_heads * size.groups
    query, keys, values = (
        torch.from_numpy(rng.normal(size=(total, n, size.head_dim))).to(dtype)
        for n in (heads, size.kv_heads, size.kv_heads)
    )
    return Paged(batch, cache, query, keys, values, size.groups)


def draw_batch(size: Sizes, rng: np.random.Generator) -> TokenBatch:
    """Tokens laid out as the engine does it; the first and the last slot have some."""
    first_slot = int(rng.integers(0, 3))
    longest = size.longest_context + 3 * size.most_tokens
    mask = np.zeros((size.slots, size.most_tokens, longest), np.bool_)
    places = []
    for s in range(size.slots):
        if 0 < s < size.slots - 1 and rng.random() < 0.3:
            continue
        context = int(rng.integers(0, size.longest_context + 1))
        most = 1 if size.kind == "single" else size.most_tokens
        rows: list[int] = []
        for offset in range(int(rng.integers(1, most + 1))):
            gap = int(rng.integers(0, 3)) if size.kind == "beams" else 0
            rows.append((rows[-1] + 1 if rows else context) + gap)
            mask[s, offset, :context] = True
            if offset and size.kind != "beams":  # a beam's parents have rows, but no tokens here
                parent = offset - 1 if size.kind == "chains" else int(rng.integers(0, offset))
                mask[s, offset] |= mask[s, parent]
            elif size.kind == "beams":
                mask[s, offset, context : rows[-1]] = rng.random(rows[-1] - context) < 0.5
            mask[s, offset, rows[-1]] = True
            places.append((s + first_slot, rows[-1], offset))
    slots, at, offsets = torch.tensor(places).T.contiguous()
    mask, end = mask[:, : int(offsets.max()) + 1, : int(at.max()) + 1], first_slot + size.slots
    return TokenBatch(at, at, slots, at, offsets, torch.from_numpy(mask), first_slot, end)
