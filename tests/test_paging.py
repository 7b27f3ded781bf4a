"""No page is lost or owned twice whatever happens, and what networks compute knows no pages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.live import LiveBackend
from engine.errors import UserError
from engine.loop import Engine
from engine.paging import PagePool
from engine.protocol import Limits
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_decoder, tiny_server
from models.attention import AttentionPlan
from models.kv_cache import KVCache, TokenBatch
from tests.paged_cache import PAGE_SIZES, paged_copy, rows_of
from tests.random_plans import RandomPlans

# -- the pool ------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 17), st.integers(0, 2**32 - 1))
def test_no_page_is_lost_or_owned_twice(
    page_size: int, slots: int, capacity: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)

    def pages_for(tokens: int) -> int:
        return (tokens + page_size - 1) // page_size

    pages = int(rng.integers(pages_for(capacity), slots * pages_for(capacity) + 1))
    pool = PagePool(pages, page_size, slots, capacity)
    shadow: list[list[int]] = [[] for _ in range(slots)]  # pages by slot
    for _ in range(int(rng.integers(1, 25))):
        what = rng.choice(["reserve", "reserve", "reserve_all", "trim", "release", "withdraw"])
        slot, tokens = int(rng.integers(slots)), rng.integers(0, capacity + 1, slots)
        before = [len(owned) for owned in shadow]
        # What the slots should own afterwards, by the words of the docstrings.
        asked = [pages_for(int(n)) if s == slot else None for s, n in enumerate(tokens)]
        if what == "reserve_all":
            asked = [pages_for(int(n)) for n in tokens]
        if what == "withdraw":
            share = float(rng.choice([0.0, 0.3, 0.99]))
            pool.withdraw(share)
            assert pool.withdrawn == min(int(share * pages), pages - pool.tables.shape[1])
            wanted = before
        elif what == "release":
            pool.release(slot)
            wanted = [0 if s == slot else n for s, n in enumerate(before)]
        elif what == "trim":
            pool.trim(slot, int(tokens[slot]))
            wanted = [n if a is None else min(n, a) for n, a in zip(before, asked, strict=True)]
        else:
            wanted = [max(n, a or 0) for n, a in zip(before, asked, strict=True)]
            more = sum(wanted) - sum(before)
            fits = more == 0 or sum(wanted) <= pages - pool.withdrawn
            one = what == "reserve"
            done = pool.reserve(slot, int(tokens[slot])) if one else pool.reserve_all(tokens)
            assert done is fits
            wanted = wanted if fits else before
        old, shadow = shadow, [row[row >= 0].tolist() for row in pool.tables]
        assert [len(owned) for owned in shadow] == wanted == pool.owned.tolist()
        for had, has in zip(old, shadow, strict=True):
            shorter = min(len(had), len(has))
            assert had[:shorter] == has[:shorter], "a page that holds tokens was exchanged"
        everything = [page for owned in shadow for page in owned]
        assert len(set(everything)) == len(everything) == pool.used_pages
        assert pool.used_pages + pool.free_pages + pool.withdrawn == pages
        pool.check()
    pool.trim_all(np.zeros(slots, np.int64))
    pool.withdraw(0.0)
    pool.check()
    assert pool.free_pages == pages


def test_check_notices_what_is_wrong() -> None:
    def pool() -> PagePool:
        made = PagePool(6, 2, 3, 8)
        made.reserve(0, 4)
        made.reserve(1, 3)
        made.check()
        return made

    twice = pool()
    twice.tables[1, 0] = twice.tables[0, 0]
    leaked = pool()
    leaked.tables[0, 1], leaked.owned[0] = -1, 1
    hole = pool()
    hole.tables[0, 0] = -1
    lost = pool()
    lost._unowned -= 1
    for broken, error in ((twice, "twice"), (leaked, "leaked"), (hole, "hold"), (lost, "leaked")):
        with pytest.raises(RuntimeError, match=error):
            broken.check()


def test_with_one_page_a_slot_every_slot_has_its_own() -> None:
    pool = PagePool.sized(5, 40)
    rng = np.random.default_rng(0)
    for slot in rng.integers(0, 5, 60).tolist():
        if pool.owned[slot]:
            pool.release(slot)
        else:
            assert pool.reserve(slot, 1)
        own = pool.owned > 0
        assert (pool.tables[own, 0] == np.flatnonzero(own)).all()


def test_sizes_and_shares_by_hand() -> None:
    pool = PagePool.sized(3, 10, page_size=4)
    assert (pool.pages, pool.tables.shape) == (9, (3, 3))
    assert PagePool.sized(3, 10, page_size=4, tokens=23).pages == 5
    assert PagePool.sized(3, 10, page_size=4, tokens=1000).pages == 9, "more than can be used"
    assert PagePool.sized(3, 10, page_size=99).page_size == 10
    assert [int(n) for n in pool.pages_for(np.array([0, 1, 4, 5]))] == [0, 1, 1, 2]
    contexts = np.array([4, 3, 7])
    assert pool.fragmentation(contexts) == 0, "nothing is reserved"
    assert pool.reserve(0, 10) and pool.reserve(1, 4)
    # Slot 0: context and root need 2 of its 3 pages. 7 of 16 reserved rows hold a token.
    assert pool.tree_pages(contexts) == 1
    assert pool.fragmentation(contexts) == pytest.approx(1 - 7 / 16)


def test_a_pool_that_cannot_serve_is_refused() -> None:
    with pytest.raises(UserError, match=r"has 2 pages of 4 tokens.*give at least 12 tokens"):
        PagePool.sized(3, 10, page_size=4, tokens=11)
    for size in (0, -1):
        with pytest.raises(UserError, match=f"a page of {size} tokens"):
            PagePool.sized(3, 10, page_size=size)
    with pytest.raises(ValueError, match="asks for 11 tokens of 10"):
        PagePool.sized(3, 10).reserve(0, 11)


# -- the cache -----------------------------------------------------------------------------------


def filled(slots: int, capacity: int) -> KVCache:
    """A cache of two layers with random contents."""
    cache = KVCache(2, slots, 2, capacity, 4, torch.float64)
    cache.keys.normal_(generator=torch.Generator().manual_seed(0))
    cache.values.normal_(generator=torch.Generator().manual_seed(1))
    return cache


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_rows_move_and_are_shared_through_the_tables(page_size: int) -> None:
    cache = filled(3, 10)
    paged = paged_copy(cache, page_size, np.random.default_rng(page_size))
    slots = torch.tensor([0, 0, 2, 2])
    for each in (cache, paged):
        each.move(slots, torch.tensor([5, 7, 4, 9]), torch.tensor([4, 5, 0, 8]))
        each.share(1, 4)
    for slot in range(3):
        for got, wanted in zip(rows_of(paged, slot, 10), rows_of(cache, slot, 10), strict=True):
            assert torch.equal(got, wanted)
    assert torch.equal(cache.keys[:, 0, :, :4], cache.keys[:, 1, :, :4])
    assert not torch.equal(cache.keys[:, 0, :, 4], cache.keys[:, 1, :, 4])


def test_a_run_of_pages_is_not_copied() -> None:
    cache = filled(4, 6)
    tables = cache.tables.copy()
    tables[1] = -1  # a free slot between
    cache.use_tables(tables)
    keys, _ = cache.read(1, cache.locate(0, 3, 5), 5)
    assert keys.data_ptr() == cache.keys[1].data_ptr() and keys.shape == (3, 2, 5, 4)
    cache.use_tables(np.array([[2], [3], [0], [1]]))
    assert cache.locate(0, 2, 5) == slice(2, 4)
    assert cache.locate(0, 3, 5) != slice(2, 5)
    keys, _ = cache.read(1, cache.locate(0, 3, 5), 5)
    assert torch.equal(keys, cache.keys[1, [2, 3, 0], :, :5])


@pytest.mark.parametrize("page_size", [4, 12])
def test_nan_in_a_page_does_not_pass_to_its_next_owner(page_size: int) -> None:
    cache = paged_copy(filled(2, 12), page_size, np.random.default_rng(0))
    pages = cache.tables[0].copy()
    cache.values[1, pages[-1], 0, 3] = torch.nan
    cache.keys[0, pages[-1], 0, 3] = torch.nan
    row = torch.tensor([4])
    seen = torch.arange(12)[None, None] <= 4
    batch = TokenBatch(row, row, row * 0, row, row * 0, seen, 0, 1)
    query = torch.ones(1, 2, 4, dtype=torch.float64)
    for scrubbed in (False, True):
        mixed = AttentionPlan(batch, 1, torch.float64).attend(1, query, cache, 0, 1)
        assert bool(mixed.isnan().any()) is not scrubbed
        cache.scrub(pages)
    assert not cache.keys[:, pages].any() and cache.keys[:, cache.tables[1]].any()


# -- networks ------------------------------------------------------------------------------------

LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=10)
CAPACITY = 96


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@torch.inference_mode()
def test_logits_do_not_depend_on_the_page_size(dtype: str, page_size: int) -> None:
    decoder = tiny_decoder(0, 32, dtype)
    rng = np.random.default_rng(page_size)
    one = decoder.new_cache(2, 40)
    paged = paged_copy(one, page_size, rng)
    context, nodes = 13, 9
    tree = torch.zeros(1, nodes, context + nodes, dtype=torch.bool)
    tree[:, :, :context] = True
    depth = [0] * nodes
    for node in range(nodes):
        if node:
            parent = int(rng.integers(node))
            tree[0, node] |= tree[0, parent]
            depth[node] = depth[parent] + 1
        tree[0, node, context + node] = True
    text = torch.arange(context)
    offsets = torch.arange(nodes)
    for slot in (1, 0):
        slots = torch.full((context,), slot)
        prompt = TokenBatch(
            torch.from_numpy(rng.integers(0, 32, context)), text, slots, text, text,
            torch.ones(1, context, context, dtype=torch.bool).tril(), slot, slot + 1,
        )  # fmt: skip
        verified = TokenBatch(
            torch.from_numpy(rng.integers(0, 32, nodes)), context + torch.tensor(depth),
            slots[:nodes], context + offsets, offsets, tree, slot, slot + 1,
        )  # fmt: skip
        for batch in (prompt, verified):
            got, wanted = (decoder.logits(decoder.forward(batch, c)[0]) for c in (paged, one))
            assert torch.equal(got, wanted)


@pytest.fixture(scope="module")
def server() -> LiveServer:
    """The tiny networks in float64."""
    return tiny_server(0, 10, limits=LIMITS, capacity_tokens=CAPACITY)


def served(server: LiveServer, backend: LiveBackend) -> tuple[list[list[int]], Engine]:
    """Outputs of a few requests under random trees, the pool checked at every iteration."""
    rng = np.random.default_rng(5)
    requests = [
        Request(i, 0, rng.integers(0, 10, int(rng.integers(1, 30))).tolist(), 18, 0.0)
        for i in range(5)
    ]
    server.backend = backend
    engine = server.engine(requests)
    controller = RandomPlans(rng)
    while (view := engine.next_decision()) is not None:
        engine.run_iteration(view, controller)
        backend.pool.check()
        pages = backend.pool.pages_for(engine.slots.context[0])
        running = engine.slots.decoding[0]
        assert (backend.pool.owned == pages)[running].all(), "trees keep no page between steps"
        assert not backend.pool.owned[~engine.slots.active[0]].any()
    assert backend.pool.used_pages == 0
    return [request.output for request in requests], engine


def test_served_text_does_not_depend_on_the_page_size(server: LiveServer) -> None:
    one = LiveBackend(server.decoder, server.head, LIMITS, CAPACITY)
    assert one.pool.page_size == CAPACITY and one.pool.pages == LIMITS.slots
    wanted, plain = served(server, one)
    for page_size in PAGE_SIZES:
        small = LiveBackend(server.decoder, server.head, LIMITS, CAPACITY, page_size=page_size)
        got, engine = served(server, small)
        assert got == wanted
        assert engine.counters["emitted"] == plain.counters["emitted"]
    assert plain.counters["emitted"] > plain.counters["request_iterations"], "nothing accepted"


def test_a_step_without_pages_is_refused(server: LiveServer) -> None:
    backend = LiveBackend(server.decoder, server.head, LIMITS, CAPACITY, 8, CAPACITY)
    assert backend.pool.pages == CAPACITY // 8
    backend.pool.claim(np.array([0, 0]), np.array([0, 90]))
    with pytest.raises(UserError, match="more KV pages than the 0 that are free"):
        backend.pool.claim(np.array([1]), np.array([0]))
    assert backend.pool.owned.tolist() == [12, 0, 0]
