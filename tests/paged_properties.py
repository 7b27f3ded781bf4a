"""What must hold of page tables and packed masks, for as many random cases as wanted.

Each property reads the arrays the way a kernel does, one request, row and bit at a time, and finds
what the batch and the block tables say. The tests run some cases, `benchmarks.gpu` a thousand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given, settings

from models.kv_cache import TokenBatch
from models.paged_batch import PagedBatch, lay_out_pages, pack_mask
from tests.random_paged import Sizes, draw_paged, sizes


def page_tables_lead_to_the_slots_own_rows(size: Sizes) -> None:
    """Every row of every request is found where the slot's block table has it."""
    batch, cache, *_ = draw_paged(size)
    paged = lay_out_pages(batch, cache.tables, cache.page_size)
    slots = sorted(set(batch.slots.tolist()))
    assert len(paged.qo_indptr) == len(paged.kv_indptr) == len(slots) + 1
    ends, last = paged.kv_indptr.tolist(), paged.last_page_len.tolist()
    for request, slot in enumerate(slots):
        own = batch.rows[batch.slots == slot]
        tokens = paged.qo_indptr[request : request + 2].tolist()
        assert batch.slots[tokens[0] : tokens[1]].tolist() == [slot] * len(own)
        pages = paged.kv_indices[ends[request] : ends[request + 1]].tolist()
        rows = (len(pages) - 1) * size.page_size + last[request]
        assert rows == int(own.max()) + 1
        assert 1 <= last[request] <= size.page_size
        assert pages == cache.tables[slot, : len(pages)].tolist()
    assert paged.positions.tolist() == batch.rows.tolist()
    assert paged.requests.tolist() == [slots.index(slot) for slot in batch.slots.tolist()]
    for array in paged[:-1]:
        assert array is not None and array.dtype == torch.int32


def masks_say_what_a_token_sees(size: Sizes) -> None:
    """Packed, a bit is set where the batch's mask is; without a mask the causal rule says it."""
    batch, cache, *_ = draw_paged(size)
    paged = lay_out_pages(batch, cache.tables, cache.page_size)
    if size.kind in ("chains", "single"):
        assert paged.mask is None
    bits = _bits(paged, cache.page_size)
    if paged.mask is None:
        for token, row in enumerate(batch.rows.tolist()):
            assert _seen(batch, token) == list(range(row + 1))
        return
    packed, ends = pack_mask(paged.mask, bits)
    tokens = paged.qo_indptr.tolist()
    lengths = (bits.diff() // paged.qo_indptr.diff()).tolist()
    assert ends[-1] == len(packed) == sum((t + 7) // 8 for t in bits.diff().tolist())
    for token, request in enumerate(paged.requests.tolist()):
        length, within = lengths[request], token - tokens[request]
        places = [within * length + row for row in range(length)]
        own = packed[ends[request] : ends[request + 1]].tolist()
        seen = [row for row, at in enumerate(places) if own[at // 8] >> (at % 8) & 1]
        assert seen == _seen(batch, token)


def packing_is_numpys_request_by_request(size: Sizes) -> None:
    """Any flat mask in any segments, some of them empty."""
    rng = np.random.default_rng(size.seed)
    segments = [rng.random(int(rng.integers(0, 40))) < 0.5 for _ in range(size.slots)]
    indptr = torch.tensor([0, *np.cumsum([len(s) for s in segments])], dtype=torch.int32)
    packed, ends = pack_mask(torch.from_numpy(np.concatenate(segments)), indptr)
    wanted = [np.packbits(segment, bitorder="little") for segment in segments]
    assert packed.tolist() == np.concatenate(wanted).tolist()
    assert ends.diff().tolist() == [len(part) for part in wanted]
    assert ends[0] == 0


def _seen(batch: TokenBatch, token: int) -> list[int]:
    """Rows that the batch's own mask lets a token see."""
    slot, offset = int(batch.slots[token]), int(batch.offsets[token])
    return batch.mask[slot - batch.first_slot, offset].nonzero().flatten().tolist()


def _bits(paged: PagedBatch, page_size: int) -> torch.Tensor:
    """Ends of the requests in an unpacked mask."""
    rows = (paged.kv_indptr.diff() - 1) * page_size + paged.last_page_len
    return torch.cat((torch.zeros(1), (paged.qo_indptr.diff() * rows).cumsum(0))).int()


PROPERTIES: tuple[Callable[[Sizes], None], ...] = (
    page_tables_lead_to_the_slots_own_rows,
    masks_say_what_a_token_sees,
    packing_is_numpys_request_by_request,
)


def run_property(check: Callable[[Sizes], None], cases: int) -> int:
    """Run one property over so many random cases; how many ran. Raises where it does not hold."""
    ran = 0

    @settings(max_examples=cases, database=None, deadline=None, report_multiple_bugs=False)
    @given(sizes)
    def run(size: Sizes) -> None:
        nonlocal ran
        ran += 1
        check(size)

    run()
    return ran


def run_properties(cases: int) -> int:
    """All properties over so many cases each; how many cases ran in all."""
    return sum(run_property(check, cases) for check in PROPERTIES)
