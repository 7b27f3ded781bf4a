"""The token with the largest logit of every row, at the speed at which the logits can be read.

Greedy verification is this and nothing else, so it is worth a kernel of its own. Floats are
compared as integers, which the compiler vectorizes without being told that there is no NaN.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit, prange
from numpy.typing import NDArray
from torch import Tensor

from engine.protocol import Bools, Ints

BLOCK = 1024
MAGNITUDE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)  # a larger magnitude is that of a NaN


def likeliest(logits: Tensor) -> tuple[Tensor, Bools]:
    """Tokens [n] with the largest logits of rows [n, vocabulary]; rows of which it is a number.

    Of equals the lowest token, 0.0 counting as larger than -0.0. A row with a NaN anywhere, or with
    nothing but -inf, has none. Both answers are on the host: logits on a card are searched there,
    and the host waits for one copy of what was found.
    """
    if logits.dtype == torch.float32 and logits.is_contiguous() and logits.device.type == "cpu":
        token = np.empty(len(logits), np.int64)
        finite = np.empty(len(logits), np.bool_)
        largest_of_rows(logits.numpy().view(np.int32), token, finite)
        return torch.from_numpy(token), finite
    found = logits.argmax(-1)  # to which a NaN is larger than any number
    is_number = torch.isfinite(logits.gather(1, found[:, None])[:, 0])
    if logits.device.type == "cpu":
        return found, is_number.numpy()
    found = torch.where(is_number, found, -1).cpu()
    return found.clamp(min=0), (found >= 0).numpy()


@njit(cache=True, parallel=True)
def largest_of_rows(
    bits: NDArray[np.int32],  # [n, vocabulary] of float32
    token: Ints,  # [n], written
    finite: Bools,  # [n], written
) -> None:
    """`likeliest` on the bits of float32."""
    for i in prange(len(token)):
        row = bits[i]
        best, first, magnitude = _largest(row[:BLOCK]), 0, _magnitude(row)
        for begin in range(BLOCK, len(row), BLOCK):
            found = _largest(row[begin : begin + BLOCK])
            if found > best:
                best, first = found, begin
        while _ordered(row[first]) != best:
            first += 1
        token[i] = first
        finite[i] = magnitude <= INFINITE and row[first] & MAGNITUDE != INFINITE


@njit(cache=True, inline="always")
def _ordered(word: np.int32) -> np.int32:
    """An integer that orders as the float of these bits does."""
    return np.int32(word ^ (np.int32(word >> np.int32(31)) & MAGNITUDE))


@njit(cache=True)
def _largest(block: NDArray[np.int32]) -> np.int32:
    best = _ordered(block[0])
    for v in range(1, len(block)):
        best = max(best, _ordered(block[v]))
    return best


@njit(cache=True)
def _magnitude(row: NDArray[np.int32]) -> np.int32:
    largest = np.int32(0)
    for v in range(len(row)):
        largest = max(largest, np.int32(row[v] & MAGNITUDE))
    return largest
