"""A `TokenBatch` in FlashInfer's terms: requests, their pages, and the mask of what tokens see.

A request here is a slot that has tokens in the batch; a slot without any does not appear. Which
operators take these arrays is `models.flashinfer_attention`'s business. All arrays stay on the
host, where planning happens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kv_cache import TokenBatch

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class PagedBatch(NamedTuple):
    """R requests with T tokens; index arrays are int32, `indptr` are ends behind a leading 0."""

    qo_indptr: Tensor  # [R + 1] tokens of each request
    kv_indptr: Tensor  # [R + 1] pages of each request
    kv_indices: Tensor  # [pages of all requests] page numbers
    last_page_len: Tensor  # [R] rows used of the last page, 1 to page_size
    requests: Tensor  # [T] request of each token
    positions: Tensor  # [T] row of its request that each token writes
    mask: Tensor | None  # [sum of tokens · rows] bool, request after request; None: causal


def lay_out_pages(batch: TokenBatch, tables: Ints, page_size: int) -> PagedBatch:
    """The batch over block tables [slots, pages_per_slot] of pages of `page_size` rows.

    A request's rows end with the last that its tokens write, as in `models.ragged_attention`.
    Raises ValueError where a row has no page.
    """
    slots, rows = batch.slots.cpu().numpy(), batch.rows.cpu().numpy()
    first = np.concatenate(([0], np.flatnonzero(np.diff(slots)) + 1))
    tokens = np.diff(first, append=len(slots))
    lengths = np.maximum.reduceat(rows, first) + 1
    pages = -(-lengths // page_size)
    requests = np.arange(len(first)).repeat(tokens)

    owned = tables[slots[first], : int(pages.max())]
    indices = owned[np.arange(owned.shape[1]) < pages[:, None]]
    if (indices < 0).any():
        short = slots[first][((owned < 0) & (np.arange(owned.shape[1]) < pages[:, None])).any(1)]
        raise ValueError(
            f"slots {short.tolist()} have rows without a page; reserve pages before the pass"
        )
    return PagedBatch(
        qo_indptr=_ends(tokens),
        kv_indptr=_ends(pages),
        kv_indices=_int32(indices),
        last_page_len=_int32(lengths - (pages - 1) * page_size),
        requests=_int32(requests),
        positions=_int32(rows),
        mask=_mask(batch, requests, tokens, lengths),
    )


def _mask(batch: TokenBatch, requests: Ints, tokens: Ints, lengths: Ints) -> Tensor | None:
    """What the tokens see of their requests' rows, flat; None where each sees all up to its own."""
    slots, rows = batch.slots.cpu().numpy(), batch.rows.cpu().numpy()
    offsets, column = batch.offsets.cpu().numpy(), np.arange(int(lengths.max()))
    real = column < lengths[requests, None]  # [T, L] rows that the token's request has
    if batch.mask.ndim == 3:
        allowed = batch.mask.cpu().numpy()
        seen = allowed[slots - batch.first_slot, offsets, : len(column)] & real
    else:
        seen = real  # an empty mask hides nothing
    # Causal is: query i of q sees rows up to n - q + i of the n there are.
    last = (
        (lengths - tokens)[requests] + np.arange(len(rows)) - (tokens.cumsum() - tokens)[requests]
    )
    if (seen == (column <= last[:, None])).all():
        return None
    return torch.from_numpy(seen[real])


def pack_mask(mask: Tensor, indptr: Tensor) -> tuple[Tensor, Tensor]:
    """Bits of a flat mask in bytes, lowest bit first; each segment begins a byte of its own.

    `indptr` [R + 1] are the segments' ends in bits, what comes back are bytes and their ends. It is
    what FlashInfer's `segment_packbits(mask, indptr, bitorder="little")` gives.
    """
    bits = np.diff(indptr.numpy())
    n_bytes = -(-bits // 8)
    ends = np.concatenate(([0], n_bytes.cumsum()))
    room = np.zeros(8 * int(ends[-1]), np.bool_)
    # Bit k of a segment stands at bit k behind the segment's first byte.
    room[np.arange(len(mask)) + (8 * ends[:-1] - indptr.numpy()[:-1]).repeat(bits)] = mask.numpy()
    return torch.from_numpy(np.packbits(room, bitorder="little")), _int32(ends)


def _ends(counts: Ints) -> Tensor:
    return _int32(np.concatenate(([0], counts.cumsum())))


def _int32(values: Ints) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))
