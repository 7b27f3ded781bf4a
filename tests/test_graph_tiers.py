"""Tiers, padding and replays hold for random batches; and broken ones are noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from models.errors import UserError
from models.graph_tiers import GraphTiers, Tier
from models.paged_batch import PagedBatch, lay_out_pages, pad_pages
from tests import graph_properties
from tests.graph_properties import PROPERTIES, run_graph_properties
from tests.paged_properties import run_property
from tests.random_paged import Sizes, draw_paged


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_properties_hold(check: Callable[[Sizes], None]) -> None:
    cases = 15 if check is graph_properties.replays_give_what_eager_passes_give else 60
    assert run_property(check, cases) >= cases


def break_pages(change: Callable[[PagedBatch], PagedBatch]) -> Any:
    """`pad_pages` with something else done to it."""
    return patch.object(graph_properties, "pad_pages", lambda *args: change(pad_pages(*args)))


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p._replace(kv_indices=torch.where(p.kv_indices > 999, 0, p.kv_indices)),
        lambda p: p._replace(last_page_len=torch.zeros_like(p.last_page_len)),
        lambda p: p._replace(requests=p.requests.clamp(max=0)),
        lambda p: p._replace(positions=p.positions.roll(1)),
        lambda p: p._replace(mask=p.mask.roll(1)),
        lambda p: p._replace(mask=p.mask[:-1]),
    ],
    ids=["real page", "no row", "real request", "positions", "shifted mask", "short mask"],
)
def test_the_properties_notice_broken_padding(change: Callable[[PagedBatch], PagedBatch]) -> None:
    size = Sizes("trees", 3, 20, 7, 4, 1, 1, 2, seed=0)
    for check in PROPERTIES:
        check(size)
    with break_pages(change), pytest.raises((AssertionError, ValueError)):
        for check in PROPERTIES:
            check(size)


def test_failures_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(size: Sizes) -> None:
        raise AssertionError("as it should")

    def refuses(size: Sizes) -> None:
        raise ValueError("a page number is not below 4")  # as the interpreter says it

    def once(check: Callable[[Sizes], None], cases: int) -> None:
        """No search for the smallest failing case."""
        check(Sizes("trees", 3, 20, 7, 4, 1, 1, 2, seed=0))

    sound = graph_properties.tiers_are_the_smallest_that_fit
    with (
        patch.object(graph_properties, "PROPERTIES", (sound, fails, refuses)),
        patch.object(graph_properties, "run_property", once),
    ):
        assert run_graph_properties(1) == (2, 3)
    told = capsys.readouterr().out
    assert "fails: as it should" in told and "refuses: a page number" in told


def test_a_tier_has_a_token_for_every_request() -> None:
    tiers = GraphTiers(requests=(1, 8), tokens=(1, 2, 4, 8, 16))
    assert tiers.of(np.array([1])) == Tier(1, 1)
    assert tiers.of(np.array([1, 1])) == Tier(8, 8)
    assert tiers.of(np.array([1] * 7 + [2])) == Tier(8, 16)
    assert tiers.of(np.array([16])) == Tier(1, 16)
    assert tiers.of(np.array([17])) == "too large"
    assert tiers.of(np.array([66])) == "prompt"
    assert GraphTiers().of(np.array([65] * 15)) == Tier(16, 1024)


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("sizes", [(5, 1), (5, 4), (3, 9), (9, 3)], ids=str)
def test_the_tiers_in_reach_are_those_of_all_passes(sizes: tuple[int, int], more: int) -> None:
    tiers = GraphTiers(requests=(1, 2, 4, 6), tokens=(1, 3, 4, 9, 16, 17), tree_tokens=7)
    requests, tokens = sizes
    found: set[Any] = set()
    for count in range(1, requests + 1):
        for total in range(count + more, count * tokens + 1):
            # Any split will do, so long as nobody has more than `tokens`.
            split = np.full(count, total // count) + (np.arange(count) < total % count)
            found.add(tiers.of(split))
    assert tiers.reach(requests, tokens, more) == sorted(found - {"prompt", "too large"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"requests": ()}, "requests are"),
        ({"tokens": (0, 1)}, "from 1 on"),
        ({"tokens": (1, 4, 2)}, "rising"),
        ({"requests": (1, 64), "tokens": (1, 32)}, "a token or more for each"),
    ],
)
def test_tiers_that_cannot_be(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        GraphTiers(**change)


def test_a_larger_batch_is_not_padded() -> None:
    batch, cache, *_ = draw_paged(Sizes("trees", 3, 20, 7, 4, 1, 1, 2, seed=0))
    paged = lay_out_pages(batch, cache.tables, cache.page_size)
    for tier in ((1, 64), (8, 1)):
        with pytest.raises(ValueError, match="are padded to"):
            pad_pages(paged, *tier, 0, cache.page_size)
