"""The interpreter equals plain attention, sees every array it is given, and refuses nonsense."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from models import flashinfer_interpreter as interpreter
from models.attention import AttentionPlan
from models.flashinfer_attention import FlashInferAttention
from models.kv_cache import KVCache
from models.paged_batch import PagedBatch, lay_out_pages, pack_mask
from tests.random_paged import Paged, Sizes, draw_paged, sizes

TREES = Sizes("trees", 3, 20, 7, 4, 2, 2, 8, seed=0)
WORKSPACE = torch.empty(16, dtype=torch.uint8)
TOLERANCES = ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.03))


@settings(max_examples=120)
@given(sizes)
def test_equals_plain_attention_on_random_pages(size: Sizes) -> None:
    case = draw_paged(size)
    copy = KVCache(2, len(case.cache.keys[0]), size.kv_heads, size.page_size, size.head_dim,
                   torch.float64)  # fmt: skip
    copy.use_tables(case.cache.tables)
    copy.keys.copy_(case.cache.keys)
    copy.values.copy_(case.cache.values)
    got, wanted = interpreted(case), plain(case, copy)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
    # What was appended stands where the cache's own `write` puts it, and nowhere else.
    assert torch.equal(case.cache.keys, copy.keys)
    assert torch.equal(case.cache.values, copy.values)


@pytest.mark.parametrize(("dtype", "atol"), TOLERANCES)
def test_equals_plain_attention_in_every_number_format(dtype: torch.dtype, atol: float) -> None:
    case = draw_paged(TREES, dtype)
    torch.testing.assert_close(interpreted(case), plain(case, case.cache), rtol=0, atol=atol)


def interpreted(case: Paged) -> Tensor:
    """Layer 1 through FlashInfer's calls: new keys and values stored, then attended to."""
    attention = FlashInferAttention(interpreter, torch.device("cpu"), workspace_bytes=16)
    plan = attention.plan(case.batch, case.cache, case.query.shape[1])
    plan.store(1, case.keys, case.values, case.cache)
    return plan.attend(1, case.query, case.cache, case.batch.first_slot, case.batch.end_slot)


def plain(case: Paged, cache: KVCache) -> Tensor:
    """The same with the CPU's own attention and the cache's own writing."""
    cache.write(1, case.batch, case.keys, case.values)
    plan = AttentionPlan(case.batch, case.groups, case.query.dtype)
    return plan.attend(1, case.query, cache, case.batch.first_slot, case.batch.end_slot)


# -- calls by hand ---------------------------------------------------------------------------------


def arrays(case: Paged) -> PagedBatch:
    """The batch in FlashInfer's terms."""
    return lay_out_pages(case.batch, case.cache.tables, case.cache.page_size)


def planned(case: Paged, paged: PagedBatch, **given: Any) -> Any:
    """A wrapper planned with these arrays, other arguments as `given`."""
    wrapper = interpreter.BatchPrefillWithPagedKVCacheWrapper(
        WORKSPACE, kv_layout=given.pop("kv_layout", "HND"), backend=given.pop("backend", "fa2")
    )
    asked: dict[str, Any] = dict(
        qo_indptr=paged.qo_indptr,
        paged_kv_indptr=paged.kv_indptr,
        paged_kv_indices=paged.kv_indices,
        paged_kv_last_page_len=paged.last_page_len,
        num_qo_heads=case.query.shape[1],
        num_kv_heads=case.cache.keys.shape[2],
        head_dim_qk=case.query.shape[2],
        page_size=case.cache.page_size,
        custom_mask=paged.mask,
        q_data_type=case.query.dtype,
    )
    wrapper.plan(**asked | given)
    return wrapper


def run(case: Paged, paged: PagedBatch, **given: Any) -> Tensor:
    """Layer 0 attended to with these arrays."""
    mixed: Tensor = planned(case, paged, **given).run(case.query, stored(case))
    return mixed


def stored(case: Paged) -> tuple[Tensor, Tensor]:
    """Keys and values of layer 0."""
    return case.cache.keys[0], case.cache.values[0]


@pytest.mark.parametrize("seed", range(4))
def test_every_array_matters(seed: int) -> None:
    """Controls: a shifted mask bit, a wrong last page and swapped pages change the result."""
    case = draw_paged(TREES._replace(seed=seed))
    paged = arrays(case)
    right = run(case, paged)
    assert paged.mask is not None
    flipped = paged.mask.clone()
    flipped[-1] = not flipped[-1]
    swapped = paged.kv_indices.flip(0)
    longer = paged.last_page_len.clone()
    at = int(longer.argmax())
    assert longer[at] > 1
    longer[at] -= 1
    bits = int(paged.qo_indptr[at + 1] - paged.qo_indptr[at])
    for wrong in (
        paged._replace(mask=paged.mask.roll(1)),
        paged._replace(mask=flipped),
        paged._replace(kv_indices=swapped),
        paged._replace(last_page_len=longer, mask=paged.mask[:-bits]),
        paged._replace(mask=None),
    ):
        assert (run(case, wrong) - right).abs().max() > 1e-6
    assert torch.equal(run(case, paged), right)


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_last_page_shows_on_the_causal_path_too(seed: int) -> None:
    case = draw_paged(TREES._replace(kind="chains", seed=seed))
    paged = arrays(case)
    right = run(case, paged, causal=True)
    at = int(paged.last_page_len.argmin())
    more = paged.last_page_len.clone()
    more[at] += 1
    assert (run(case, paged._replace(last_page_len=more), causal=True) - right).abs().max() > 1e-6


def test_causal_is_ignored_beside_a_mask() -> None:
    case = draw_paged(TREES)
    paged = arrays(case)
    assert torch.equal(run(case, paged, causal=True), run(case, paged))


def test_both_layouts_and_one_tensor_for_both_give_the_same() -> None:
    case = draw_paged(TREES)
    paged = arrays(case)
    keys, values = stored(case)
    wanted = run(case, paged)
    by_row = keys.transpose(1, 2).contiguous(), values.transpose(1, 2).contiguous()
    rows_first = planned(case, paged, kv_layout="NHD")
    assert torch.equal(rows_first.run(case.query, by_row), wanted)
    assert torch.equal(rows_first.run(case.query, torch.stack(by_row, dim=1)), wanted)
    with pytest.raises(ValueError, match="pages are"):
        rows_first.run(case.query, (keys, values))
    before = [array.clone() for array in by_row]
    index = paged.requests, paged.positions
    pages = paged.kv_indices, paged.kv_indptr, paged.last_page_len
    interpreter.append_paged_kv_cache(case.keys, case.values, *index, by_row, *pages)
    case.cache.write(0, case.batch, case.keys, case.values)
    for array, old, new in zip(by_row, before, stored(case), strict=True):
        assert torch.equal(array, new.transpose(1, 2)) and not torch.equal(array, old)


def test_a_graphs_wrapper_reads_its_buffers() -> None:
    """A packed mask is right there once the caller has put its offsets into bytes."""
    case = draw_paged(TREES)
    paged = arrays(case)
    assert paged.mask is not None
    rows = (paged.kv_indptr.diff() - 1) * case.cache.page_size + paged.last_page_len
    bits = torch.cat((torch.zeros(1), (paged.qo_indptr.diff() * rows).cumsum(0))).int()
    packed, ends = pack_mask(paged.mask, bits)
    names = ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
    buffers: dict[str, Any] = {
        f"{name}_buf": torch.zeros_like(array)
        for name, array in zip(names, paged[:4], strict=True)
        if array is not None
    }
    mask_indptr = torch.zeros_like(ends)
    wrapper = interpreter.BatchPrefillWithPagedKVCacheWrapper(
        WORKSPACE, "HND", True, backend="fa2", mask_indptr_buf=mask_indptr,
        custom_mask_buf=torch.zeros(len(packed) + 5, dtype=torch.uint8), **buffers,
    )  # fmt: skip
    _, _, kv_heads, page_size, head_dim = case.cache.keys.shape
    heads = case.query.shape[1]
    wrapper.plan(*paged[:4], heads, kv_heads, head_dim, page_size, packed_custom_mask=packed,
                 q_data_type=torch.float64)  # type: ignore[arg-type]  # fmt: skip
    assert torch.equal(mask_indptr, bits)  # as FlashInfer leaves them
    with pytest.raises(ValueError, match="beyond the packed mask"):
        wrapper.run(case.query, stored(case))
    mask_indptr.copy_(ends)
    assert torch.equal(wrapper.run(case.query, stored(case)), run(case, paged))


def test_refuses_what_flashinfer_would_not_take() -> None:
    case = draw_paged(TREES)
    paged = arrays(case)
    assert paged.mask is not None
    packed = torch.zeros(3, dtype=torch.uint8)
    for changed, message in (
        (dict(qo_indptr=paged.qo_indptr.long()), "qo_indptr is torch.int64"),
        (dict(paged_kv_indices=paged.kv_indices.long()), "paged_kv_indices is torch.int64"),
        (dict(backend="fa3"), "fa3 takes no custom mask"),
        (dict(backend="fa4"), "backend 'fa4' is not one of"),
        (dict(kv_layout="HDN"), "kv_layout 'HDN' is not one of"),
        (dict(custom_mask=paged.mask[1:]), "elements, the batch"),
        (dict(custom_mask=paged.mask.int()), "not bool"),
        (dict(packed_custom_mask=packed), "the packed mask has 3 bytes"),
        (dict(num_qo_heads=3), "3 query heads are no multiple of 2"),
        (dict(q_data_type=torch.int8), "torch.int8 is not one of"),
        (dict(paged_kv_last_page_len=paged.last_page_len + 4), "not filled with 1 to 4 rows"),
        (dict(paged_kv_indices=paged.kv_indices[:-1]), "ends behind paged_kv_indices"),
        (dict(paged_kv_indptr=paged.kv_indptr[:-1]), "differ in length"),
        (dict(max_token_per_sequence=99), "99 is not the longest"),
    ):
        with pytest.raises(ValueError, match=message):
            planned(case, paged, **changed)
    whole = torch.zeros(4096, dtype=torch.uint8)
    rows = (paged.kv_indptr.diff() - 1) * 4 + paged.last_page_len
    n_bytes = int(((paged.qo_indptr.diff() * rows + 7) // 8).sum())
    with pytest.raises(ValueError, match="hand in custom_mask"):
        planned(case, paged, packed_custom_mask=whole[:n_bytes])
    wrapper = planned(case, paged)
    for query, cache, message in (
        (case.query.float(), stored(case), "q is torch.float32, planned was torch.float64"),
        (case.query[1:], stored(case), "q is"),
        (case.query, (stored(case)[0].float(), stored(case)[1]), "planned torch.float64"),
        (case.query, (stored(case)[0][:1], stored(case)[1][:1]), "a page number is not below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            wrapper.run(query, cache)


def test_append_refuses_what_does_not_fit() -> None:
    case = draw_paged(TREES)
    paged = arrays(case)
    good: dict[str, Any] = dict(
        append_key=case.keys,
        append_value=case.values,
        batch_indices=paged.requests,
        positions=paged.positions,
        paged_kv_cache=stored(case),
        kv_indices=paged.kv_indices,
        kv_indptr=paged.kv_indptr,
        kv_last_page_len=paged.last_page_len,
        kv_layout="HND",
    )
    for wrong, message in (
        (dict(positions=paged.positions.long()), "not int32"),
        (dict(positions=paged.positions + 40), "behind the last row"),
        (dict(batch_indices=paged.requests[1:]), "indices for"),
        (dict(append_key=case.keys.float()), "is appended to a cache of"),
        (dict(kv_layout="NHD"), "pages are"),
    ):
        with pytest.raises(ValueError, match=message):
            interpreter.append_paged_kv_cache(**good | wrong)
