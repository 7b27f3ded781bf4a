"""The fused passes equal plain torch, which the networks use in every other number format."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import fused
from models.kv_cache import KVCache, TokenBatch
from models.layers import Linear, rms_norm, rotary_tables, rotate_and_store, swiglu
from tests.paged_cache import PAGE_SIZES, random_tables


@given(st.floats(-80, 80))
def test_exp_is_exact_to_float32(x: float) -> None:
    x = float(np.float32(x))
    assert fused.exp(np.float32(x)) == pytest.approx(math.exp(x), rel=1.2e-7 * (2 + abs(x)))


def test_exp_of_what_a_mask_leaves_is_nothing() -> None:
    assert fused.exp(np.float32(-1e30)) < 1e-37


@settings(max_examples=30)
@given(st.integers(1, 7), st.integers(1, 70), st.floats(1e-3, 30), st.integers(0, 999))
def test_norm(rows: int, width: int, scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    x, weight = scale * torch.randn(rows, width), torch.randn(width)
    with torch.inference_mode():
        got = rms_norm(x, weight, 1e-5)
    np.testing.assert_allclose(
        got, rms_norm(x.double(), weight.double(), 1e-5), rtol=1e-5, atol=1e-6
    )


@settings(max_examples=30)
@given(st.integers(1, 7), st.integers(1, 40), st.floats(0.1, 60), st.integers(0, 999))
def test_swiglu(rows: int, width: int, scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    x, identity = scale * torch.randn(rows, 2 * width), torch.eye(width)
    gate_up = torch.eye(2 * width)
    with torch.inference_mode():
        got = swiglu(x, Linear(gate_up), Linear(identity))
    wanted = swiglu(x.double(), Linear(gate_up.double()), Linear(identity.double()))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@settings(max_examples=30)
@given(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from([2, 6, 64]),
    st.sampled_from(PAGE_SIZES), st.integers(0, 999),
)  # fmt: skip
def test_rotate_and_store(
    rows: int, kv_heads: int, groups: int, head_dim: int, page_size: int, seed: int
) -> None:
    torch.manual_seed(seed)
    heads, slots, capacity = kv_heads * groups, 3, 8
    pages_of, pages = random_tables(np.random.default_rng(seed), slots, capacity, page_size)
    mixed = torch.randn(rows, (heads + 2 * kv_heads) * head_dim)
    positions = torch.randint(0, 32, (rows,))
    of_slot = torch.randint(0, slots, (rows,))
    to_row = torch.randperm(capacity)[:rows]
    batch = TokenBatch(positions, positions, of_slot, to_row, positions, torch.empty(0), 0, slots)
    results = []
    for dtype in (torch.float32, torch.float64):
        cache = KVCache(2, pages, kv_heads, page_size, head_dim, dtype)
        cache.use_tables(pages_of)
        tables = rotary_tables(head_dim, 32, 10_000.0, torch.float32)
        cos, sin = (table.to(dtype) for table in tables)
        with torch.inference_mode():
            query = rotate_and_store(mixed.to(dtype), heads, (cos, sin), batch, cache, 1)
        results.append((query, cache.keys, cache.values))
    for got, wanted in zip(*results, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6)
