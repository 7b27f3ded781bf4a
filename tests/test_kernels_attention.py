"""Ragged attention equals its twin in plain floats and the padded one; pages change neither."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.attention import Attention, AttentionPlan
from models.kv_cache import KVCache, TokenBatch
from models.ragged_attention import RaggedAttention
from tests.paged_cache import PAGE_SIZES, paged_copy
from tests.twins.attend import attend as attend_twin

shapes = st.tuples(
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([2, 8]),
    st.integers(1, 9),
)


def filled(
    slots: int,
    kv_heads: int,
    head_dim: int,
    rows: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> KVCache:
    """A cache of one layer with random contents, also in rows that nobody may see."""
    cache = KVCache(1, slots, kv_heads, rows, head_dim, dtype)
    generator = torch.Generator().manual_seed(seed)
    for stored in (cache.keys, cache.values):
        stored.copy_(2 * torch.randn(stored.shape, generator=generator, dtype=dtype))
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
    rng = np.random.default_rng(seed)
    batch = tree_batch(rng, n_slots, context, widest)
    cache = filled(batch.end_slot, kv_heads, head_dim, context + widest, seed)
    query = draw_query(rng, batch, kv_heads * groups, head_dim)
    got, wanted = (
        plan.attend(0, query, cache, batch.first_slot, batch.end_slot)
        for plan in (
            RaggedAttention(batch, groups),
            AttentionPlan(batch, groups, torch.float32),
        )
    )
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


def tree_batch(rng: np.random.Generator, n_slots: int, context: int, widest: int) -> TokenBatch:
    """Tokens of `n_slots` slots from slot 1 on, behind contexts of up to `context` rows."""
    first_slot = 1
    mask = np.zeros((n_slots, widest, context + widest), np.bool_)
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
    return TokenBatch(rows, rows, slots, rows, offsets, torch.from_numpy(mask), first_slot, end)


def draw_query(
    rng: np.random.Generator, batch: TokenBatch, heads: int, head_dim: int
) -> torch.Tensor:
    """Random queries of a batch's tokens."""
    size = (len(batch.slots), heads, head_dim)
    return torch.from_numpy(rng.normal(size=size).astype(np.float32))


def rows_used(batch: TokenBatch) -> np.ndarray:
    """Rows [slots] up to the last that each slot writes; none before the first slot."""
    used = np.zeros(batch.end_slot, np.int64)
    np.maximum.at(used, batch.slots.numpy(), batch.rows.numpy() + 1)
    return used


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@settings(max_examples=30)
@given(shapes, st.integers(1, 7), st.integers(0, 2**31 - 1))
def test_pages_change_nothing(
    page_size: int, shape: tuple[int, ...], widest: int, seed: int
) -> None:
    n_slots, kv_heads, groups, head_dim, context = shape
    rng = np.random.default_rng(seed)
    batch = tree_batch(rng, n_slots, context, widest)
    query = draw_query(rng, batch, kv_heads * groups, head_dim)
    for dtype in (torch.float32, torch.float64):
        cache = filled(batch.end_slot, kv_heads, head_dim, context + widest, seed, dtype)
        paged = paged_copy(cache, page_size, rng, rows_used(batch))
        makers: list[Callable[[], Attention]] = [partial(AttentionPlan, batch, groups, dtype)]
        if dtype == torch.float32:
            makers.append(partial(RaggedAttention, batch, groups))
        for make in makers:
            got, wanted = (
                make().attend(0, query.to(dtype), c, batch.first_slot, batch.end_slot)
                for c in (paged, cache)
            )
            assert torch.equal(got, wanted)


def test_the_tables_are_read() -> None:
    rng = np.random.default_rng(0)
    batch = tree_batch(rng, 2, 9, 4)
    cache = filled(3, 1, 8, 13, 0)
    query = draw_query(rng, batch, 1, 8)
    paged = paged_copy(cache, 3, rng)
    paged.use_tables(paged.tables[:, ::-1].copy())
    wanted = RaggedAttention(batch, 1).attend(0, query, cache, 1, 3)
    for plan in (RaggedAttention(batch, 1), AttentionPlan(batch, 1, torch.float32)):
        assert not np.allclose(plan.attend(0, query, paged, 1, 3), wanted, atol=1e-3)


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
