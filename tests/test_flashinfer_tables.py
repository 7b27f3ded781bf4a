"""Page tables and packed masks hold what the batch says; and a wrong one is noticed."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
import torch

from models.kv_cache import TokenBatch
from models.paged_batch import PagedBatch, lay_out_pages, pack_mask
from tests import paged_properties
from tests.paged_properties import PROPERTIES, run_property
from tests.random_paged import Sizes, draw_paged


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_properties_hold(check: Callable[[Sizes], None]) -> None:
    assert run_property(check, 150) >= 150


@pytest.mark.parametrize("broken", ["last_page_len", "kv_indices", "requests", "mask"])
def test_the_properties_notice_a_broken_array(broken: str) -> None:
    def break_it(*args: object) -> PagedBatch:
        paged = lay_out_pages(*args)  # type: ignore[arg-type]
        array = getattr(paged, broken)
        wrong = array.roll(1) if broken == "mask" else array + 1
        return paged._replace(**{broken: wrong})

    size = Sizes("trees", 3, 20, 7, 4, 1, 1, 2, seed=0)
    for check in PROPERTIES:
        check(size)
    with patch.object(paged_properties, "lay_out_pages", break_it), pytest.raises(AssertionError):
        for check in PROPERTIES:
            check(size)


def test_bits_fill_bytes_from_the_lowest_and_requests_begin_bytes() -> None:
    mask = torch.tensor([True, False, True] + [False] * 5 + [True] + [False, True])
    packed, ends = pack_mask(mask, torch.tensor([0, 9, 11], dtype=torch.int32))
    assert packed.tolist() == [0b101, 0b1, 0b10]
    assert ends.tolist() == [0, 2, 3]


def test_only_chains_go_without_a_mask() -> None:
    """One tree is enough for a mask, and so are scratch rows with a hole between them."""
    case = draw_paged(Sizes("trees", 2, 9, 6, 4, 1, 1, 2, seed=0))
    assert lay_out_pages(case.batch, case.cache.tables, 4).mask is not None
    rows = torch.tensor([3, 5])
    zeros = torch.zeros(2, dtype=torch.int64)
    seen = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1]], dtype=torch.bool)
    batch = TokenBatch(rows, rows, zeros, rows, torch.arange(2), seen[None], 0, 1)
    assert lay_out_pages(batch, np.array([[0, 1]]), 4).mask is not None
    seen[1, 4] = True
    assert lay_out_pages(batch, np.array([[0, 1]]), 4).mask is not None  # row 3 is not behind 4


def test_an_empty_mask_hides_nothing() -> None:
    rows, slots = torch.tensor([4, 0]), torch.tensor([0, 1])
    batch = TokenBatch(rows, rows, slots, rows, slots * 0, torch.empty(0), 0, 2)
    paged = lay_out_pages(batch, np.array([[2, 0], [1, -1]]), 4)
    assert paged.mask is None
    assert paged.kv_indices.tolist() == [2, 0, 1]
    assert paged.last_page_len.tolist() == [1, 1]


def test_a_row_without_a_page_is_refused() -> None:
    rows, slots = torch.tensor([4, 4]), torch.tensor([0, 1])
    batch = TokenBatch(rows, rows, slots, rows, slots * 0, torch.empty(0), 0, 2)
    with pytest.raises(ValueError, match=r"slots \[1\] have rows without a page"):
        lay_out_pages(batch, np.array([[2, 0], [1, -1]]), 4)
