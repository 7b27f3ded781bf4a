"""y = x Wᵀ for a handful of rows, with W kept in bfloat16 and every sum in float32.

Decoding and verifying small trees cost the time to read the weights. Where a processor has no
bfloat16 arithmetic (AVX2), the matrix libraries either read float32, twice the bytes, or convert
slowly. Widening bfloat16 to float32 is a shift, exact, and hidden behind the read.

Two output rows share a 32-bit word, one in each half, so that both come out of one load with one
instruction each. `Linear` (models/layers.py) decides when this form is used.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

# Weight words that a task owns: they stay in the first cache while further input rows pass.
TASK_WORDS = 4
ZERO = np.float32(0)


def _shift_left(context: Any, word: Any) -> Any:
    """The float32 of the bfloat16 in a word's lower half."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        moved = builder.shl(arguments[0], ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(moved, ir.FloatType())

    return types.float32(types.uint32), generate


def _mask_off(context: Any, word: Any) -> Any:
    """The float32 of the bfloat16 in a word's upper half."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        masked = builder.and_(arguments[0], ir.Constant(ir.IntType(32), 0xFFFF0000))
        return builder.bitcast(masked, ir.FloatType())

    return types.float32(types.uint32), generate


_low: Any = intrinsic(_shift_left)
_high: Any = intrinsic(_mask_off)


# One row of weight words against 1, 2, 4 or 6 rows of x: every word is read and split once. Six
# rows and two outputs fill the registers. `fastmath` lets sums be reordered, without which the
# compiler cannot vectorize them.
@njit(cache=True, fastmath=True, inline="always")
def _one(w: Any, x: Any, y: Any, n: int, i: int) -> None:
    a, b = ZERO, ZERO
    words, row = w[n], x[i]
    for k in range(len(words)):
        a += _low(words[k]) * row[k]
        b += _high(words[k]) * row[k]
    y[i, 2 * n], y[i, 2 * n + 1] = a, b


@njit(cache=True, fastmath=True, inline="always")
def _two(w: Any, x: Any, y: Any, n: int, i: int) -> None:
    a0, a1, b0, b1 = ZERO, ZERO, ZERO, ZERO
    words, row_0, row_1 = w[n], x[i], x[i + 1]
    for k in range(len(words)):
        low, high = _low(words[k]), _high(words[k])
        a0 += low * row_0[k]
        b0 += high * row_0[k]
        a1 += low * row_1[k]
        b1 += high * row_1[k]
    y[i, 2 * n], y[i, 2 * n + 1] = a0, b0
    y[i + 1, 2 * n], y[i + 1, 2 * n + 1] = a1, b1


@njit(cache=True, fastmath=True, inline="always")
def _four(w: Any, x: Any, y: Any, n: int, i: int, last: int) -> None:
    a0, a1, a2, a3 = ZERO, ZERO, ZERO, ZERO
    b0, b1, b2, b3 = ZERO, ZERO, ZERO, ZERO
    i3 = min(i + 3, last)
    words, row_0, row_1, row_2, row_3 = w[n], x[i], x[i + 1], x[i + 2], x[i3]
    for k in range(len(words)):
        low, high = _low(words[k]), _high(words[k])
        a0 += low * row_0[k]
        b0 += high * row_0[k]
        a1 += low * row_1[k]
        b1 += high * row_1[k]
        a2 += low * row_2[k]
        b2 += high * row_2[k]
        a3 += low * row_3[k]
        b3 += high * row_3[k]
    y[i, 2 * n], y[i, 2 * n + 1] = a0, b0
    y[i + 1, 2 * n], y[i + 1, 2 * n + 1] = a1, b1
    y[i + 2, 2 * n], y[i + 2, 2 * n + 1] = a2, b2
    y[i3, 2 * n], y[i3, 2 * n + 1] = a3, b3


@njit(cache=True, fastmath=True, inline="always")
def _six(w: Any, x: Any, y: Any, n: int, i: int, last: int) -> None:
    a0, a1, a2, a3, a4, a5 = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    b0, b1, b2, b3, b4, b5 = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    i5 = min(i + 5, last)
    words, row_0, row_1, row_2 = w[n], x[i], x[i + 1], x[i + 2]
    row_3, row_4, row_5 = x[i + 3], x[i + 4], x[i5]
    for k in range(len(words)):
        low, high = _low(words[k]), _high(words[k])
        a0 += low * row_0[k]
        b0 += high * row_0[k]
        a1 += low * row_1[k]
        b1 += high * row_1[k]
        a2 += low * row_2[k]
        b2 += high * row_2[k]
        a3 += low * row_3[k]
        b3 += high * row_3[k]
        a4 += low * row_4[k]
        b4 += high * row_4[k]
        a5 += low * row_5[k]
        b5 += high * row_5[k]
    y[i, 2 * n], y[i, 2 * n + 1] = a0, b0
    y[i + 1, 2 * n], y[i + 1, 2 * n + 1] = a1, b1
    y[i + 2, 2 * n], y[i + 2, 2 * n + 1] = a2, b2
    y[i + 3, 2 * n], y[i + 3, 2 * n + 1] = a3, b3
    y[i + 4, 2 * n], y[i + 4, 2 * n + 1] = a4, b4
    y[i5, 2 * n], y[i5, 2 * n + 1] = a5, b5


@njit(cache=True, fastmath=True, parallel=True)
def multiply(
    w: NDArray[np.uint32],  # [ceil(out / 2), in], bfloat16 bits of two rows in each word
    x: NDArray[np.float32],  # [rows, in]
    y: NDArray[np.float32],  # [rows, 2 ceil(out / 2)], written
) -> None:
    """y = x Wᵀ of contiguous rows; a last column without a weight row is 0."""
    words, rows = w.shape[0], x.shape[0]
    for task in prange((words + TASK_WORDS - 1) // TASK_WORDS):
        first = task * TASK_WORDS
        end = min(first + TASK_WORDS, words)
        i = 0
        while i < rows:
            left = rows - i
            # Seven and eight rows go better as four and four. A block of three or five rows
            # repeats its last row.
            if left >= 9 or left == 6 or left == 5:
                for n in range(first, end):
                    _six(w, x, y, n, i, rows - 1)
                i += 6
            elif left >= 3:
                for n in range(first, end):
                    _four(w, x, y, n, i, rows - 1)
                i += 4
            elif left == 2:
                for n in range(first, end):
                    _two(w, x, y, n, i)
                i += 2
            else:
                for n in range(first, end):
                    _one(w, x, y, n, i)
                i += 1


def match_threads() -> None:
    """Let Numba use as many threads as torch does, in the calling thread."""
    wanted = torch.get_num_threads()
    most = int(vars(numba.config)["NUMBA_NUM_THREADS"])  # fixed when Numba was imported
    numba.set_num_threads(min(wanted, most))
    # Both share OpenMP, and Numba's first launch sets the threads of all of it to its own number.
    torch.set_num_threads(wanted)


class NarrowProduct:
    """A frozen weight [out, in] for products with few rows, on as many threads as torch uses."""

    def __init__(self, weight: Tensor) -> None:
        """The weight must be exact in bfloat16 (`exact`), or the product is not what it was."""
        self.out_features = weight.shape[0]
        bits = weight.to(torch.bfloat16).contiguous().view(torch.int16).numpy().view(np.uint16)
        if len(bits) % 2:
            bits = np.concatenate((bits, np.zeros_like(bits[:1])))
        # Little endian or not: the even row is arithmetically the lower half.
        lower, upper = bits[0::2].astype(np.uint32), bits[1::2].astype(np.uint32)
        self.words: NDArray[np.uint32] = lower | np.left_shift(upper, 16, dtype=np.uint32)
        self.n_bytes = self.words.nbytes
        match_threads()

    @staticmethod
    def exact(weight: Tensor) -> bool:
        """Whether bfloat16 holds this float32 weight on the CPU without rounding."""
        return (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and torch.equal(weight.to(torch.bfloat16).float(), weight)
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, in] float32, contiguous, to [rows, out]."""
        y = x.new_empty((x.shape[0], 2 * len(self.words)))
        multiply(self.words, x.detach().numpy(), y.numpy())
        return y[:, : self.out_features]
