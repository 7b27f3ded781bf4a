"""Attention over slots of different lengths and tree masks, without padding (float32, Numba).

Every slot's queries see that slot's own rows and no more; padding all of them to the longest
would multiply the memory that is read, which is what attending costs. `AttentionPlan` does the
same with padding, in torch, for other number formats and for long prompts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from models.fused import exp
from models.kv_cache import KVCache, TokenBatch

MASKED = np.float32(-1e30)
BLOCK = 4  # queries that share the reading of a key row


@njit(cache=True, fastmath=True, error_model="numpy")
def _score(q: Any, keys: Any, scores: Any) -> None:
    """Products of four queries [4][head_dim] with key rows [length, head_dim]."""
    q0, q1, q2, q3 = q
    scale = np.float32(1.0 / np.sqrt(keys.shape[1]))
    for row in range(keys.shape[0]):
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for k in range(keys.shape[1]):
            key = keys[row, k]
            a += q0[k] * key
            b += q1[k] * key
            c += q2[k] * key
            d += q3[k] * key
        scores[0, row], scores[1, row] = a * scale, b * scale
        scores[2, row], scores[3, row] = c * scale, d * scale


@njit(cache=True, fastmath=True, error_model="numpy")
def _mix(scores: Any, values: Any, out: Any) -> None:
    """Softmax of scores [length] in place, and its mean of value rows [length, head_dim]."""
    length, head_dim = values.shape
    largest, total = MASKED, np.float32(0)
    for row in range(length):
        largest = max(largest, scores[row])
    for row in range(length):
        scores[row] = exp(scores[row] - largest)
        total += scores[row]
    out[:] = 0
    whole = length - length % 4
    for row in range(0, whole, 4):  # four at once, or storing the sum would be half the work
        p0, p1, p2, p3 = scores[row], scores[row + 1], scores[row + 2], scores[row + 3]
        v0, v1, v2, v3 = values[row], values[row + 1], values[row + 2], values[row + 3]
        for k in range(head_dim):
            out[k] += p0 * v0[k] + p1 * v1[k] + p2 * v2[k] + p3 * v3[k]
    for row in range(whole, length):
        for k in range(head_dim):
            out[k] += scores[row] * values[row, k]
    for k in range(head_dim):
        out[k] /= total


@njit(cache=True, fastmath=True, error_model="numpy", parallel=True)
def _attend(
    query: Any,  # [T, kv_heads, groups, head_dim]
    keys: Any,  # [slots, kv_heads, capacity, head_dim]
    values: Any,
    mask: Any,  # [slots, Q, L] bool, or empty: a token sees all rows of its slot up to `length`
    tasks: Any,  # [N, 5]: first token, tokens, slot, length, block of queries
    mixed: Any,  # [T, kv_heads, groups, head_dim], written
) -> None:
    heads, groups = keys.shape[1], query.shape[2]
    for index in prange(len(tasks) * heads):
        begin, tokens, slot, length, block = tasks[index // heads]
        head = index % heads
        scores = np.empty((BLOCK, length), np.float32)
        # A short block repeats its last query, and throws the repetition away.
        last = tokens * groups - 1
        i0, i1 = BLOCK * block, min(BLOCK * block + 1, last)
        i2, i3 = min(BLOCK * block + 2, last), min(BLOCK * block + 3, last)
        four = (
            query[begin + i0 // groups, head, i0 % groups],
            query[begin + i1 // groups, head, i1 % groups],
            query[begin + i2 // groups, head, i2 % groups],
            query[begin + i3 // groups, head, i3 % groups],
        )
        _score(four, keys[slot, head, :length], scores)
        for i in range(i0, min(i0 + BLOCK, last + 1)):
            token = i // groups
            if mask.shape[0]:
                seen = mask[slot, token]
                for row in range(length):
                    if not seen[row]:
                        scores[i - i0, row] = MASKED
            out = mixed[begin + token, head, i % groups]
            _mix(scores[i - i0], values[slot, head, :length], out)


@njit(cache=True)
def _lay_out_tasks(slots: Any, rows: Any, first_slot: int, groups: int) -> Any:
    """The blocks of queries of a batch whose tokens stand side by side by slot."""
    tasks = np.empty((len(slots) * groups, 5), np.int64)
    n = begin = 0
    while begin < len(slots):
        end, length = begin, 0
        while end < len(slots) and slots[end] == slots[begin]:
            length = max(length, rows[end] + 1)
            end += 1
        for block in range((groups * (end - begin) + BLOCK - 1) // BLOCK):
            tasks[n] = begin, end - begin, slots[begin] - first_slot, length, block
            n += 1
        begin = end
    return tasks[:n]


class RaggedAttention:
    """What is the same in every layer of one pass, for tokens that write their own rows.

    A token sees rows of its slot up to the last that its batch writes, less what the mask hides;
    an empty mask hides nothing (one token a slot).
    """

    def __init__(self, batch: TokenBatch, groups: int) -> None:
        self.mask = batch.mask.numpy() if batch.mask.ndim == 3 else np.empty((0, 0, 0), np.bool_)
        self.tasks = _lay_out_tasks(
            batch.slots.numpy(), batch.rows.numpy(), batch.first_slot, groups
        )

    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [T, heads, head_dim] to mixed values [T, heads * head_dim]."""
        keys, values = cache.keys[layer, first:end], cache.values[layer, first:end]
        total, heads, head_dim = query.shape
        kv_heads = keys.shape[1]
        folded = query.view(total, kv_heads, heads // kv_heads, head_dim)
        mixed = torch.empty_like(folded)
        _attend(folded.numpy(), keys.numpy(), values.numpy(), self.mask, self.tasks, mixed.numpy())
        return mixed.view(total, heads * head_dim)
