"""Attention over slots of different lengths and tree masks, without padding (float32, Numba).

Every slot's queries see that slot's own rows and no more; padding all of them to the longest
would multiply the memory that is read, which is what attending costs. `AttentionPlan` does the
same with padding, in torch, for other number formats and for long prompts.

Keys and values are read page by page, and the same sums are made in the same order whatever the
pages' size: text does not depend on it.
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
def _score(q: Any, keys: Any, page: int, head: int, first: int, scores: Any) -> None:
    """Products of four queries [4][head_dim] with a page's keys; its first row is row `first`.

    They are written to scores [4, length]; the last page's rows behind `length` are left alone.
    """
    q0, q1, q2, q3 = q
    head_dim = keys.shape[3]
    scale = np.float32(1.0 / np.sqrt(head_dim))
    for row in range(min(keys.shape[2], scores.shape[1] - first)):
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for k in range(head_dim):
            key = keys[page, head, row, k]
            a += q0[k] * key
            b += q1[k] * key
            c += q2[k] * key
            d += q3[k] * key
        at = first + row
        scores[0, at], scores[1, at] = a * scale, b * scale
        scores[2, at], scores[3, at] = c * scale, d * scale


@njit(cache=True, fastmath=True, error_model="numpy")
def _exponentiate(scores: Any) -> Any:
    """e to the scores [length] less the largest, in place; returns their sum."""
    largest, total = MASKED, np.float32(0)
    for row in range(len(scores)):
        largest = max(largest, scores[row])
    for row in range(len(scores)):
        scores[row] = exp(scores[row] - largest)
        total += scores[row]
    return total


# Sums stay in the order of the rows, so that the same numbers come out whatever the page size.
@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _add(weights: Any, values: Any, page: int, head: int, first: int, out: Any) -> None:
    """Add a page's values to out [head_dim], weighed by weights [length] from row `first` on."""
    rows, head_dim = min(values.shape[2], len(weights) - first), values.shape[3]
    whole = rows - rows % 4
    for row in range(0, whole, 4):  # four at once, or storing the sum would be half the work
        at = first + row
        p0, p1, p2, p3 = weights[at], weights[at + 1], weights[at + 2], weights[at + 3]
        v0, v1 = values[page, head, row], values[page, head, row + 1]
        v2, v3 = values[page, head, row + 2], values[page, head, row + 3]
        for k in range(head_dim):
            out[k] = (((out[k] + p0 * v0[k]) + p1 * v1[k]) + p2 * v2[k]) + p3 * v3[k]
    for row in range(whole, rows):
        weight, value = weights[first + row], values[page, head, row]
        for k in range(head_dim):
            out[k] += weight * value[k]


@njit(cache=True, fastmath=True, error_model="numpy", parallel=True)
def attend(
    query: Any,  # [T, kv_heads, groups, head_dim]
    keys: Any,  # [pages, kv_heads, page_size, head_dim]
    values: Any,
    tables: Any,  # [slots, pages_per_slot] pages of each slot
    mask: Any,  # [slots, Q, L] bool, or empty: a token sees all rows of its slot up to `length`
    tasks: Any,  # [N, 5]: first token, tokens, slot, length, block of queries
    mixed: Any,  # [T, kv_heads, groups, head_dim], written
) -> None:
    """Values mixed by the softmax of what each query sees."""
    heads, page_size = keys.shape[1:3]
    groups = query.shape[2]
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
        pages = tables[slot, : (length + page_size - 1) // page_size]
        for p in range(len(pages)):
            _score(four, keys, pages[p], head, p * page_size, scores)
        for i in range(i0, min(i0 + BLOCK, last + 1)):
            token = i // groups
            if mask.shape[0]:
                seen = mask[slot, token]
                for row in range(length):
                    if not seen[row]:
                        scores[i - i0, row] = MASKED
            total = _exponentiate(scores[i - i0])
            out = mixed[begin + token, head, i % groups]
            out[:] = 0
            for p in range(len(pages)):
                _add(scores[i - i0], values, pages[p], head, p * page_size, out)
            for k in range(len(out)):
                out[k] /= total


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
        total, heads, head_dim = query.shape
        kv_heads = cache.keys.shape[2]
        keys, values = cache.keys[layer].numpy(), cache.values[layer].numpy()
        folded = query.view(total, kv_heads, heads // kv_heads, head_dim)
        mixed = torch.empty_like(folded)
        tables = cache.tables[first:end]
        attend(folded.numpy(), keys, values, tables, self.mask, self.tasks, mixed.numpy())
        return mixed.view(total, heads * head_dim)
