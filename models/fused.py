"""The small operations between a layer's products, each as one pass over float32 rows in Numba.

Written with torch operators a norm is seven calls and a rotary embedding five, and for a few rows
of a small model the calls cost more than the arithmetic. `models.layers` uses these on the CPU in
float32 and plain torch otherwise; the tests hold the two against each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LOG2_E = np.float32(1.4426950408889634)
# 2^f on [-1/2, 1/2]: Taylor in f ln 2, error below 2e-8, less than float32's own.
EXP2_TERMS = tuple(np.float32(np.log(2.0) ** n / float(np.prod(range(1, n + 1)))) for n in range(8))
C0, C1, C2, C3, C4, C5, C6, C7 = EXP2_TERMS
SMALLEST_EXPONENT = np.float32(-126.0)
LARGEST_ARGUMENT = np.float32(88.0)


def _write_exponent(context: Any, exponent: Any) -> Any:
    """2^exponent in float32 for an int32 in [-126, 127], by writing the exponent's bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        biased = builder.add(arguments[0], ir.Constant(word, 127))
        bits = builder.shl(biased, ir.Constant(word, 23))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.int32), generate


_power_of_two: Any = intrinsic(_write_exponent)


@njit(cache=True, fastmath=True, error_model="numpy", inline="always")
def exp(x: Any) -> Any:
    """e^x in float32 for x ≤ 88, relative error below 1e-7 · (1 + |x|); can be vectorized."""
    t = max(x * LOG2_E, SMALLEST_EXPONENT)
    whole = np.floor(t + np.float32(0.5))
    f = t - whole
    series = C4 + f * (C5 + f * (C6 + f * C7))
    series = C0 + f * (C1 + f * (C2 + f * (C3 + f * series)))
    return series * _power_of_two(np.int32(whole))


@njit(cache=True, fastmath=True, error_model="numpy")
def normalize(x: Floats, weight: Floats, eps: float, out: Floats) -> None:
    """Root-mean-square norm of the rows of x [T, h] times weight [h]."""
    rows, width = x.shape
    for t in range(rows):
        squares = np.float32(0)
        for i in range(width):
            squares += x[t, i] * x[t, i]
        scale = np.float32(1.0 / np.sqrt(squares / width + eps))
        for i in range(width):
            out[t, i] = x[t, i] * scale * weight[i]


@njit(cache=True, fastmath=True, error_model="numpy")
def gate(gate_up: Floats, out: Floats) -> None:
    """silu(g) · u of rows [g, u] of gate_up [T, 2n] into out [T, n]."""
    rows, width = out.shape
    for t in range(rows):
        g, u, o = gate_up[t, :width], gate_up[t, width:], out[t]
        for i in range(width):
            o[i] = g[i] * u[i] / (np.float32(1) + exp(min(-g[i], LARGEST_ARGUMENT)))


@njit(cache=True, fastmath=True, error_model="numpy")
def rotate_and_store(
    mixed: Floats,  # [T, (heads + 2 kv_heads) * head_dim]: query, key and value side by side
    positions: Ints,  # [T]
    slots: Ints,  # [T]
    rows: Ints,  # [T] cache row that a token writes
    cos: Floats,  # [context, head_dim], half-split
    sin: Floats,
    query: Floats,  # [T, heads, head_dim], written
    keys: Floats,  # [pages, kv_heads, page_size, head_dim], written
    values: Floats,
    tables: Ints,  # [slots, pages_per_slot] pages of each slot
) -> None:
    """Rotary positions for queries and keys; keys and values go to their cache rows."""
    total, heads, head_dim = query.shape
    kv_heads, page_size = keys.shape[1:3]
    half = head_dim // 2
    for t in range(total):
        p, row = positions[t], rows[t] % page_size
        page = tables[slots[t], rows[t] // page_size]
        cos_0, cos_1, sin_0, sin_1 = cos[p, :half], cos[p, half:], sin[p, :half], sin[p, half:]
        for h in range(heads + kv_heads):
            part = mixed[t, h * head_dim : (h + 1) * head_dim]
            a, b = part[:half], part[half:]
            out = query[t, h] if h < heads else keys[page, h - heads, row]
            out_a, out_b = out[:half], out[half:]
            for i in range(half):
                out_a[i] = a[i] * cos_0[i] - b[i] * sin_0[i]
                out_b[i] = b[i] * cos_1[i] + a[i] * sin_1[i]
        for h in range(kv_heads):
            first = (heads + kv_heads + h) * head_dim
            values[page, h, row] = mixed[t, first : first + head_dim]
