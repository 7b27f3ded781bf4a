"""Whole episodes on replayed passes: the text is the CPU's, with a pool of any size."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from models import pass_graphs
from models.graph_attention import StaticArray
from models.graph_tiers import GraphTiers
from models.paged_batch import PagedBatch
from tests.graphed_schedules import run_graphed_schedules


def test_random_schedules_on_graphs_change_no_text() -> None:
    counts = run_graphed_schedules(4, seed=0)  # every drafter once
    assert counts["schedules"] == 4
    for name in ("finished", "sampled", "shrunk", "eager: prompt"):
        assert counts[name] > 5, name
    assert counts["replays"] > 2 * counts["captures"] > 50
    assert not {"eager: memory", "eager: another cache"} & set(counts)


def test_a_small_pool_and_small_tiers_leave_the_rest_to_eager_passes() -> None:
    small = GraphTiers(requests=(1, 2), tokens=(1, 4, 9), tree_tokens=11)
    counts = run_graphed_schedules(4, seed=1, memory_bytes=60_000, tiers=small)
    for name in ("eager: memory", "eager: too large", "eager: prompt", "replays"):
        assert counts[name] > 5, name


def test_padding_that_writes_elsewhere_changes_the_text() -> None:
    """Page 0 in place of the spare one: some request's first tokens are lost."""
    pad = pass_graphs.pad_pages

    def careless(
        paged: PagedBatch, requests: int, tokens: int, spare_page: int, page_size: int
    ) -> PagedBatch:
        return pad(paged, requests, tokens, 0, page_size)

    with (
        patch.object(pass_graphs, "pad_pages", careless),
        pytest.raises((AssertionError, ValueError)),
    ):
        run_graphed_schedules(4, seed=0)


def test_arrays_that_are_filled_once_change_the_text() -> None:
    """A replay that reads what its capture read: nothing is copied after the first time."""
    filled: set[tuple[int, int]] = set()
    put = StaticArray.put

    def once(self: StaticArray, values: Tensor) -> Tensor:
        if (id(self), len(values)) in filled and self.there.dtype == torch.int64:
            return self.there[: len(values)]
        filled.add((id(self), len(values)))
        return put(self, values)

    with patch.object(StaticArray, "put", once), pytest.raises(AssertionError, match="differs"):
        run_graphed_schedules(4, seed=0)
