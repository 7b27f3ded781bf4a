"""The few operations that every network here is made of: linear, norm, rotary positions, SwiGLU.

They are plain functions on tensors plus one class, `Linear`, which packs its weight for the
machine's matrix kernels. What the tensors mean (requests, trees, features) is left to callers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# A weight is packed once for a typical number of rows. Eight is the size of a small tree or a
# small batch; the packing serves other sizes at about the same speed.
PACK_ROWS = 8


class Linear:
    """y = x Wᵀ for a frozen weight [out, in]; the weight is packed by oneDNN where that helps.

    An ordinary `F.linear` repacks the weight at every call, which for a handful of rows costs
    more than the product itself. The packed form is what `torch.compile` emits when it freezes.
    """

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self.n_bytes = weight.numel() * weight.element_size()
        self._packed: Tensor | None = None
        self._plain = weight
        if weight.device.type == "cpu" and _can_pack(weight.dtype):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_ROWS)
            self._plain = weight.new_empty(0)  # one copy in memory is enough

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., in] to [..., out]."""
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
    """Root-mean-square norm over the last axis (Zhang and Sennrich 2019)."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rotary_tables(
    head_dim: int, length: int, base: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin, each [length, head_dim], for the half-split rotary embedding of Llama."""
    # Angles in float32, as transformers computes them: parity is to the last rounding.
    inverse = 1.0 / base ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim)
    angles = torch.outer(torch.arange(length).float(), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to x [T, heads, head_dim] with cos and sin [T, head_dim]."""
    half = x.shape[-1] // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos.unsqueeze(1) + swapped * sin.unsqueeze(1)


def swiglu(x: Tensor, gate_up: Linear, down: Linear) -> Tensor:
    """down(silu(gate x) · up x), with gate and up in one product."""
    gate, up = gate_up(x).chunk(2, dim=-1)
    return down(F.silu(gate) * up)
