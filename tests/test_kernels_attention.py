"""Ragged attention equals its twin in plain floats, and the padded attention of the networks."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.attention import AttentionPlan
from models.kv_cache import KVCache, TokenBatch
from models.ragged_attention import RaggedAttention
from tests.twins.attend import attend as attend_twin

shapes = st.tuples(
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([2, 8]),
    st.integers(1, 9),
)


def filled(slots: int, kv_heads: int, head_dim: int, rows: int, seed: int) -> KVCache:
    """A cache of one layer with random contents, also in rows that nobody may see."""
    cache = KVCache(1, slots, kv_heads, rows, head_dim, torch.float32)
    generator = torch.Generator().manual_seed(seed)
    for stored in (cache.keys, cache.values):
        stored.copy_(2 * torch.randn(stored.shape, generator=generator))
    return cache


@settings(max_examples=40)
@given(shapes, st.integers(0, 2**31 - 1))
def test_ragged_attention_equals_its_twin(shape: tuple[int, ...], seed: int) -> None:
    n_slots, kv_heads, groups, head_dim, rows = shape
    cache = filled(n_slots, kv_heads, head_dim, rows, seed)
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rows + 1, n_slots)
    heads = kv_heads * groups
    query = torch.from_numpy(rng.normal(size=(n_slots, heads, head_dim)).astype(np.float32))
    slots, rows_of = torch.arange(n_slots), torch.from_numpy(lengths - 1)
    batch = TokenBatch(
        slots, rows_of, slots, rows_of, torch.zeros_like(slots), torch.empty(0), 0, n_slots
    )
    attention = RaggedAttention(batch, groups)
    got = attention.attend(0, query, cache, 0, n_slots).view(n_slots, heads, head_dim)
    for s, h in np.ndindex(n_slots, heads):
        seen = slice(0, int(lengths[s]))
        wanted = attend_twin(
            query[s, h].tolist(),
            cache.keys[0, s, h // groups, seen].tolist(),
            cache.values[0, s, h // groups, seen].tolist(),
        )
        np.testing.assert_allclose(got[s, h], wanted, rtol=0, atol=2e-5)


@settings(max_examples=60)
@given(shapes, st.integers(1, 7), st.integers(0, 2**31 - 1))
def test_ragged_attention_equals_the_padded_one_under_any_mask(
    shape: tuple[int, ...], widest: int, seed: int
) -> None:
    n_slots, kv_heads, groups, head_dim, context = shape
    first_slot, capacity = 1, context + widest
    rng = np.random.default_rng(seed)
    cache = filled(n_slots + first_slot, kv_heads, head_dim, capacity, seed)
    mask = np.zeros((n_slots, widest, capacity), np.bool_)
    places = []
    for s in range(n_slots):
        own = int(rng.integers(0, context + 1))
        for offset in range(int(rng.integers(1, widest + 1))):
            # A tree's node sees the context, some of the nodes before it, and itself.
            mask[s, offset, :own] = True
            mask[s, offset, own : own + offset] = rng.random(offset) < 0.5
            mask[s, offset, own + offset] = True
            places.append((s + first_slot, own + offset, offset))
    slots, rows, offsets = torch.tensor(places).T.contiguous()
    end = first_slot + n_slots
    batch = TokenBatch(rows, rows, slots, rows, offsets, torch.from_numpy(mask), first_slot, end)
    query = torch.from_numpy(
        rng.normal(size=(len(slots), kv_heads * groups, head_dim)).astype(np.float32)
    )
    got, wanted = (
        plan.attend(0, query, cache, first_slot, end)
        for plan in (
            RaggedAttention(batch, groups),
            AttentionPlan(batch, groups, torch.float32),
        )
    )
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


def test_the_mask_is_read() -> None:
    cache = filled(1, 1, 8, 3, 0)
    rows, slots = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    query = torch.randn(3, 1, 8)
    causal = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    batch = TokenBatch(rows, rows, slots, rows, rows, causal, 0, 1)
    blind = batch._replace(mask=torch.ones_like(causal))
    got, other = (RaggedAttention(b, 1).attend(0, query, cache, 0, 1) for b in (batch, blind))
    assert not np.allclose(got[0], other[0], atol=1e-3)
    np.testing.assert_array_equal(got[2], other[2])  # the last row sees everything in both
