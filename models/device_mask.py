"""FlashInfer's flat and packed masks, made on the device from a mask that is there.

What drafted nodes see hangs on which nodes were kept, and that the device knows alone until the
host reads it. All sizes are the host's, so it waits for nothing here. Masks of the host are
`models.paged_batch`'s.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kv_cache import TokenBatch
from models.upload import upload, upload_rows

Ints = NDArray[np.int64]


def flat_mask(batch: TokenBatch, lengths: Ints) -> Tensor:
    """What each token sees of the first lengths [T] rows of its slot, token after token, bool."""
    mask = batch.mask
    ends = lengths.cumsum()
    slots, offsets = batch.slots.numpy() - batch.first_slot, batch.offsets.numpy()
    slot, offset, begin, end = upload_rows((slots, offsets, ends - lengths, ends), mask.device)
    at = torch.arange(int(ends[-1]), device=mask.device)
    token = torch.searchsorted(end, at, right=True)
    return mask[slot[token], offset[token], at - begin[token]]


def pack_flat_mask(mask: Tensor, indptr: NDArray[np.int32], ends: Ints) -> Tensor:
    """Bits of a flat mask in bytes, as `models.paged_batch.pack_mask` has them.

    Segments end at the bits `indptr` [R + 1] of the mask and at the bytes `ends` [R + 1].
    """
    device = mask.device
    last, shift = upload_rows((indptr[1:].astype(np.int64), 8 * ends[:-1] - indptr[:-1]), device)
    at = torch.arange(len(mask), device=device)
    # Bit k of a segment stands at bit k behind the segment's first byte.
    to = at + shift[torch.searchsorted(last, at, right=True)]
    room = torch.zeros(8 * int(ends[-1]), dtype=torch.uint8, device=device)
    room[to] = mask.to(torch.uint8)
    weights = upload(torch.from_numpy(1 << np.arange(8, dtype=np.uint8)), device)
    return (room.view(-1, 8) * weights).sum(1, dtype=torch.uint8)
