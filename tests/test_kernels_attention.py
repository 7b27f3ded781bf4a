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
    attention = RaggedAttention(torch.from_numpy(lengths))
    got = attention.attend(0, query, cache, 0, n_slots).view(n_slots, heads, head_dim)
    for s, h in np.ndindex(n_slots, heads):
        seen = slice(0, int(lengths[s]))
        wanted = attend_twin(
            query[s, h].tolist(),
            cache.keys[0, s, h // groups, seen].tolist(),
            cache.values[0, s, h // groups, seen].tolist(),
        )
        np.testing.assert_allclose(got[s, h], wanted, rtol=0, atol=2e-5)

    # The same through the mask that everything else uses.
    slots, rows_of = torch.arange(n_slots), torch.from_numpy(lengths - 1)
    mask = (torch.arange(rows)[None] <= rows_of[:, None]).unsqueeze(1)
    batch = TokenBatch(slots, rows_of, slots, rows_of, torch.zeros_like(slots), mask, 0, n_slots)
    padded = AttentionPlan(batch, groups, torch.float32).attend(0, query, cache, 0, n_slots)
    np.testing.assert_allclose(got.reshape(n_slots, -1), padded, rtol=0, atol=2e-5)
