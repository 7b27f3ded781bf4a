"""The same keys and values once more in small pages, in random order, for comparison."""

from __future__ import annotations

import numpy as np
import torch

from models.kv_cache import KVCache

PAGE_SIZES = (1, 3, 8)


def random_tables(
    rng: np.random.Generator, slots: int, capacity: int, page_size: int
) -> tuple[np.ndarray, int]:
    """Block tables [slots, pages_per_slot] in random order, and a number of pages that has room."""
    per_slot = -(-capacity // page_size)
    pages = slots * per_slot + int(rng.integers(0, 3))
    return rng.permutation(pages)[: slots * per_slot].reshape(slots, per_slot), pages


def paged_copy(
    cache: KVCache, page_size: int, rng: np.random.Generator, rows: np.ndarray | None = None
) -> KVCache:
    """`cache` in pages of `page_size`; with `rows` [slots], pages behind those rows are missing.

    Rows that belong to nobody hold garbage.
    """
    layers, slots, kv_heads, capacity, head_dim = cache.keys.shape
    tables, pages = random_tables(rng, slots, capacity, page_size)
    copy = KVCache(layers, pages, kv_heads, page_size, head_dim, cache.keys.dtype)
    for ours, theirs in ((copy.keys, cache.keys), (copy.values, cache.values)):
        ours.fill_(7.0)
        for slot, row in np.ndindex(slots, capacity):
            ours[:, tables[slot, row // page_size], :, row % page_size] = theirs[:, slot, :, row]
    if rows is not None:
        owned = -(-rows // page_size)
        tables[np.arange(tables.shape[1]) >= owned[:, None]] = -1
    copy.use_tables(tables)
    return copy


def rows_of(cache: KVCache, slot: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [layers, kv_heads, rows, head_dim] of a slot's first rows."""
    size = cache.page_size
    at = [(int(cache.tables[slot, row // size]), row % size) for row in range(rows)]
    stored = (cache.keys, cache.values)
    keys, values = (torch.stack([c[:, p, :, r] for p, r in at], dim=2) for c in stored)
    return keys, values
