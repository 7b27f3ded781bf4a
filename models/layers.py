"""The few operations that every network here is made of: linear, norm, rotary positions, SwiGLU.

They are plain functions on tensors plus one class, `Linear`, which packs its weight for the
machine's matrix kernels. In float32 on a CPU they run as fused passes (`models.fused`). What the
tensors mean (requests, trees, features) is left to callers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models import fused
from models.kv_cache import KVCache, TokenBatch
from models.narrow_product import NarrowProduct
from models.rope import Llama3Scaling

# A weight is packed once for a typical number of rows; the packing serves other sizes at about
# the same speed. Up to NARROW_ROWS rows the narrow form is the faster one on two AMD Milan cores
# (`python -m benchmarks.passes` shows both).
PACK_ROWS = 64
NARROW_ROWS = 48


class Linear:
    """y = x Wᵀ for a frozen weight [out, in], in the forms that are fast on this machine.

    An ordinary `F.linear` repacks the weight at every call, which for a handful of rows costs
    more than the product itself. oneDNN's packed form is what `torch.compile` emits when it
    freezes. A float32 weight that bfloat16 holds exactly is kept in half the bytes besides, for
    products with few rows (`NarrowProduct`): memory is spent on time.
    """

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self.narrow = NarrowProduct(weight) if NarrowProduct.exact(weight) else None
        self._packed: Tensor | None = None
        self._plain = weight
        if weight.device.type == "cpu" and _can_pack(weight.dtype):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_ROWS)
            self._plain = weight.new_empty(0)  # one copy in memory is enough
        n_bytes = weight.numel() * weight.element_size()
        self.n_bytes = self.narrow.n_bytes if self.narrow else n_bytes  # that a token reads

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, in] to [rows, out]."""
        if self.narrow and x.shape[0] <= NARROW_ROWS:
            return self.narrow(x.contiguous())
        if self._packed is None:
            return F.linear(x, self._plain)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")


def _can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs this dtype here; for bfloat16 it asks for AVX-512 or AMX."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm of the rows of x [T, h] (Zhang and Sennrich 2019)."""
    if not _fused(x):
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    fused.normalize(x.numpy(), weight.numpy(), eps, out.numpy())
    return out


def rotary_tables(
    head_dim: int,
    length: int,
    base: float,
    dtype: torch.dtype,
    scaling: Llama3Scaling | None = None,
) -> tuple[Tensor, Tensor]:
    """cos and sin, each [length, head_dim], for the half-split rotary embedding of Llama."""
    # Angles in float32, as transformers computes them: parity is to the last rounding.
    inverse = 1.0 / base ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim)
    if scaling is not None:
        inverse = scaling.scale(inverse)
    angles = torch.outer(torch.arange(length).float(), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to x [T, heads, head_dim] with cos and sin [T, head_dim]."""
    half = x.shape[-1] // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos.unsqueeze(1) + swapped * sin.unsqueeze(1)


def rotate_and_store(
    mixed: Tensor,
    heads: int,
    tables: tuple[Tensor, Tensor],
    batch: TokenBatch,
    cache: KVCache,
    layer: int,
) -> Tensor:
    """Queries [T, heads, head_dim] of a layer's fused product; its keys and values are stored.

    `mixed` [T, (heads + 2 kv_heads) * head_dim] holds query, key and value side by side; queries
    and keys get their rotary positions from `tables` (`rotary_tables`).
    """
    kv_heads, head_dim = cache.keys.shape[2], cache.keys.shape[4]
    cos, sin = tables
    if not _fused(mixed):
        parts = mixed.view(mixed.shape[0], -1, head_dim).split((heads, kv_heads, kv_heads), dim=1)
        query, key, value = parts
        at = cos[batch.positions], sin[batch.positions]
        cache.write(layer, batch, rotate(key, *at), value)
        return rotate(query, *at)
    query = mixed.new_empty(mixed.shape[0], heads, head_dim)
    fused.rotate_and_store(
        mixed.numpy(), batch.positions.numpy(), batch.slots.numpy(), batch.rows.numpy(),
        cos.numpy(), sin.numpy(), query.numpy(), cache.keys[layer].numpy(),
        cache.values[layer].numpy(), cache.tables,
    )  # fmt: skip
    return query


def swiglu(x: Tensor, gate_up: Linear, down: Linear) -> Tensor:
    """down(silu(gate x) · up x), with gate and up in one product."""
    both = gate_up(x)
    if not _fused(both):
        gate, up = both.chunk(2, dim=-1)
        return down(F.silu(gate) * up)
    inner = both.new_empty(both.shape[0], both.shape[1] // 2)
    fused.gate(both.numpy(), inner.numpy())
    return down(inner)


def _fused(x: Tensor) -> bool:
    """Whether the Numba passes serve this tensor."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled()
