"""A `TokenBatch` in FlashInfer's terms: requests, their pages, and the mask of what tokens see.

A request here is a slot that has tokens in the batch; a slot without any does not appear. Which
operators take these arrays is `models.flashinfer_attention`'s business. All arrays are made on the
host, where planning happens, but for the mask of a batch whose mask is on a device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.device_mask import flat_mask, pack_flat_mask
from models.kv_cache import TokenBatch
from models.upload import upload

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

    def on(self, device: torch.device) -> PagedBatch:
        """What the writing of keys and values reads, on `device`; the rest is planned with here."""
        read = ("kv_indptr", "kv_indices", "last_page_len", "requests", "positions")
        return self._replace(**{name: upload(getattr(self, name), device) for name in read})

    def mask_ends(self, page_size: int) -> Tensor:
        """Ends [R + 1] of the requests in `mask`, whether there is one or not."""
        rows = (self.kv_indptr.diff() - 1) * page_size + self.last_page_len
        return _ends((self.qo_indptr.diff() * rows).numpy())


def lay_out_pages(batch: TokenBatch, tables: Ints, page_size: int) -> PagedBatch:
    """The batch over block tables [slots, pages_per_slot] of pages of `page_size` rows.

    A request's rows end with the last that its tokens write, as in `models.ragged_attention`.
    Raises ValueError where a row has no page.
    """
    slots, rows = batch.slots.numpy(), batch.rows.numpy()
    first, tokens = requests_of(slots)
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


def requests_of(slots: Ints) -> tuple[Ints, Ints]:
    """First token and number of tokens [R] of each run of equal slots [T]."""
    first = np.concatenate(([0], np.flatnonzero(np.diff(slots)) + 1))
    return first, np.diff(first, append=len(slots))


def no_pages(masked: bool) -> PagedBatch:
    """A batch of no request, to be padded."""
    nothing, start = _int32(np.empty(0, np.int64)), _ends(np.empty(0, np.int64))
    mask = torch.empty(0, dtype=torch.bool) if masked else None
    return PagedBatch(start, start, nothing, nothing, nothing, nothing, mask)


def pad_pages(
    paged: PagedBatch, requests: int, tokens: int, spare_page: int, page_size: int
) -> PagedBatch:
    """The batch as `requests` + 1 requests with `tokens` tokens, which is what a graph is made for.

    Requests that are missing have no token and one row, for FlashInfer wants lengths of 1 or more.
    The last one has the tokens that are missing, each with a row of its own, which causal attention
    wants. All their rows stand in `spare_page`, as often as it takes: they are written and read by
    nobody else, and what they hold means nothing. Real requests and tokens stay where they are.
    Raises ValueError for a batch that is larger.
    """
    idle, missing = requests - len(paged.last_page_len), tokens - len(paged.requests)
    if idle < 0 or missing < 0:
        raise ValueError(
            f"{len(paged.last_page_len)} requests with {len(paged.requests)} tokens are padded to "
            f"{requests} with {tokens}"
        )
    rows = max(missing, 1)
    pages = -(-rows // page_size)
    mask = paged.mask
    if mask is not None:
        mask = torch.cat((mask, mask.new_ones(missing * rows)))
    return PagedBatch(
        qo_indptr=_longer(paged.qo_indptr, np.array([0] * idle + [missing]).cumsum()),
        kv_indptr=_longer(paged.kv_indptr, np.array([1] * idle + [pages]).cumsum()),
        kv_indices=torch.cat((paged.kv_indices, _int32(np.full(idle + pages, spare_page)))),
        last_page_len=torch.cat(
            (paged.last_page_len, _int32(np.array([1] * idle + [rows - (pages - 1) * page_size])))
        ),
        requests=torch.cat((paged.requests, _int32(np.full(missing, requests)))),
        positions=torch.cat((paged.positions, _int32(np.arange(missing)))),
        mask=mask,
    )


def _longer(indptr: Tensor, more: Ints) -> Tensor:
    """An indptr with further ends, counted from its last."""
    return torch.cat((indptr, indptr[-1] + _int32(more)))


def _mask(batch: TokenBatch, requests: Ints, tokens: Ints, lengths: Ints) -> Tensor | None:
    """What the tokens see of their requests' rows, flat; None where each sees all up to its own.

    A mask on a device stays there, and nobody looks whether it says more than None would.
    """
    if batch.mask.device.type != "cpu":
        return flat_mask(batch, lengths[requests])
    slots, rows = batch.slots.numpy(), batch.rows.numpy()
    offsets, column = batch.offsets.numpy(), np.arange(int(lengths.max()))
    real = column < lengths[requests, None]  # [T, L] rows that the token's request has
    if batch.mask.ndim == 3:
        allowed = batch.mask.numpy()
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

    `indptr` [R + 1] are the segments' ends in bits, what comes back are bytes, where the mask is,
    and their ends. FlashInfer's `segment_packbits(mask, indptr, bitorder="little")` gives that.
    """
    bits = np.diff(indptr.numpy())
    n_bytes = -(-bits // 8)
    ends = np.concatenate(([0], n_bytes.cumsum()))
    if mask.device.type != "cpu":
        return pack_flat_mask(mask, indptr.numpy(), ends), _int32(ends)
    room = np.zeros(8 * int(ends[-1]), np.bool_)
    # Bit k of a segment stands at bit k behind the segment's first byte.
    room[np.arange(len(mask)) + (8 * ends[:-1] - indptr.numpy()[:-1]).repeat(bits)] = mask.numpy()
    return torch.from_numpy(np.packbits(room, bitorder="little")), _int32(ends)


def _ends(counts: Ints) -> Tensor:
    return _int32(np.concatenate(([0], counts.cumsum())))


def _int32(values: Ints) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))
