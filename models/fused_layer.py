"""A transformer layer over a few rows of float32 as one compiled call (CPU, Numba).

For a handful of rows the calls from Python between a layer's products cost more than what they do
there. Here a layer is straight-line code over the same kernels that `models.layers` calls one by
one: `narrow_product`, `fused`, `ragged_attention`. Networks come here with up to NARROW_ROWS rows
whose weights all have their narrow form, and take the general way otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models import fused
from models.kv_cache import KVCache, TokenBatch
from models.layers import NARROW_ROWS, Linear
from models.narrow_product import multiply
from models.ragged_attention import RaggedAttention, attend

Floats = NDArray[np.float32]
Words = NDArray[np.uint32]


class LayerArrays(NamedTuple):
    """Weights of one layer; products as `NarrowProduct.words`, what a model lacks has length 0."""

    input_norm: Floats  # [h], or the caller norms the input
    query_key_value: Words
    bias: Floats  # [(heads + 2 kv_heads) * head_dim]
    query_norm: Floats  # [head_dim]
    key_norm: Floats  # [head_dim]
    output: Words
    post_norm: Floats  # [h]
    gate_up: Words
    down: Words


class FewRows(NamedTuple):
    """What is the same in every layer of one pass; the tokens write their own cache rows."""

    positions: NDArray[np.int64]  # [T]
    slots: NDArray[np.int64]  # [T]
    rows: NDArray[np.int64]  # [T]
    tables: NDArray[np.int64]  # [all slots, pages_per_slot]
    window: NDArray[np.int64]  # [end_slot - first_slot, pages_per_slot], to which `tasks` counts
    mask: NDArray[np.bool_]  # as `ragged_attention.attend` reads it
    tasks: NDArray[np.int64]
    cos: Floats  # [context, head_dim]
    sin: Floats


def layer_arrays(
    products: tuple[Linear, Linear, Linear, Linear],
    post_norm: Tensor,
    input_norm: Tensor | None = None,
    bias: Tensor | None = None,
    head_norms: tuple[Tensor, Tensor] | None = None,
) -> LayerArrays | None:
    """Weights for `run_layer`; None where a product (qkv, output, gate_up, down) is not narrow.

    `head_norms` are those of queries and keys.
    """
    narrow = [linear.narrow for linear in products]
    if any(product is None for product in narrow):
        return None
    query_key_value, output, gate_up, down = (p.words for p in narrow if p is not None)
    query_norm, key_norm = head_norms or (None, None)
    return LayerArrays(
        _numpy(input_norm), query_key_value, _numpy(bias), _numpy(query_norm), _numpy(key_norm),
        output, _numpy(post_norm), gate_up, down,
    )  # fmt: skip


def few_rows(
    batch: TokenBatch, cache: KVCache, groups: int, tables: tuple[Tensor, Tensor]
) -> FewRows | None:
    """The pass's arrays, or None for one that goes the general way: many rows, or gradients."""
    # So few rows are never too many for the ragged attention of the general way (RAGGED_TOKENS):
    # both ways attend alike.
    if len(batch.tokens) > NARROW_ROWS or torch.is_grad_enabled():
        return None
    plan = RaggedAttention(batch, groups)
    cos, sin = tables
    return FewRows(
        batch.positions.numpy(), batch.slots.numpy(), batch.rows.numpy(), cache.tables,
        cache.tables[batch.first_slot : batch.end_slot], plan.mask, plan.tasks,
        cos.numpy(), sin.numpy(),
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def run_layer(
    layer: Any,  # LayerArrays
    rows: Any,  # FewRows
    x: Floats,  # [T, in] normed input; empty: `hidden` under the layer's own norm
    hidden: Floats,  # [T, h] residual stream, changed in place
    keys: Floats,  # [pages, kv_heads, page_size, head_dim] of this layer, written
    values: Floats,
    heads: int,
    eps: float,
) -> None:
    """hidden += attention(x); hidden += swiglu(norm(hidden))."""
    total, width = hidden.shape
    kv_heads, head_dim = keys.shape[1], keys.shape[3]
    normed = np.empty((total, width), np.float32)
    if len(layer.input_norm):
        fused.normalize(hidden, layer.input_norm, eps, normed)
        x = normed

    mixed = np.empty((total, 2 * len(layer.query_key_value)), np.float32)
    multiply(layer.query_key_value, x, mixed)
    if len(layer.bias):
        mixed += layer.bias
    if len(layer.query_norm):
        queries, keyed = heads * head_dim, (heads + kv_heads) * head_dim
        for t in range(total):
            by_head = mixed[t, :queries].reshape(heads, head_dim)
            fused.normalize(by_head, layer.query_norm, eps, by_head)
            by_head = mixed[t, queries:keyed].reshape(kv_heads, head_dim)
            fused.normalize(by_head, layer.key_norm, eps, by_head)

    query = np.empty((total, heads, head_dim), np.float32)
    fused.rotate_and_store(
        mixed, rows.positions, rows.slots, rows.rows, rows.cos, rows.sin,
        query, keys, values, rows.tables,
    )  # fmt: skip
    attended = np.empty((total, heads * head_dim), np.float32)
    grouped = (total, kv_heads, heads // kv_heads, head_dim)
    attend(
        query.reshape(grouped), keys, values, rows.window, rows.mask, rows.tasks,
        attended.reshape(grouped),
    )  # fmt: skip
    _add_product(layer.output, attended, hidden)

    fused.normalize(hidden, layer.post_norm, eps, normed)
    gate_up = np.empty((total, 2 * len(layer.gate_up)), np.float32)
    multiply(layer.gate_up, normed, gate_up)
    inner = np.empty((total, gate_up.shape[1] // 2), np.float32)
    fused.gate(gate_up, inner)
    _add_product(layer.down, inner, hidden)


@njit(cache=True)
def _add_product(w: Words, x: Floats, to: Floats) -> None:
    """to [T, out] += x Wᵀ."""
    y = np.empty((len(x), 2 * len(w)), np.float32)
    multiply(w, x, y)
    for t in range(to.shape[0]):
        for i in range(to.shape[1]):
            to[t, i] += y[t, i]


def _numpy(weight: Tensor | None) -> Floats:
    """The tensor's own memory, or nothing."""
    return np.empty(0, np.float32) if weight is None else weight.detach().numpy()
