"""Plans are made to fit by the stated rule, node by node; the last in the order gives way."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fitting import fit_plan, missing_for_roots, victim
from engine.kernels.lacking_pages import lacking_pages
from engine.paging import PagePool
from engine.protocol import Bools, Ints, Plan
from tests.twins.lacking_pages import lacking_pages as twin


def plan_of(nodes: Ints, depth: Ints | int = 4, width: Ints | int = 8) -> Plan:
    """A plan with these node caps."""
    n = len(nodes)
    depths, widths = np.broadcast_to(depth, n).copy(), np.broadcast_to(width, n).copy()
    return Plan(depths, widths, np.array(nodes), margin=np.ones(n), node_budget=10**6)


def rule(nodes: list[int], contexts: Ints, pool: PagePool, decoding: Bools) -> list[int]:
    """The rule of `fit_plan` to the letter."""

    def lacking(caps: list[int]) -> int:
        needs = [
            -(-(int(c) + 1 + n) // pool.page_size) for c, n in zip(contexts, caps, strict=True)
        ]
        return sum(
            max(need - int(owned), 0)
            for need, owned, on in zip(needs, pool.owned, decoding, strict=True)
            if on
        )

    caps = list(nodes)
    while lacking(caps) > pool.free_pages and max(caps) > 0:
        largest = max(range(len(caps)), key=lambda s: (caps[s], s))
        caps[largest] -= 1
    if lacking(caps) > pool.free_pages:
        return caps
    for s in range(len(caps)):
        while caps[s] < nodes[s]:
            grown = [*caps[:s], caps[s] + 1, *caps[s + 1 :]]
            if lacking(grown) > lacking(caps):
                break
            caps = grown
    return caps


@st.composite
def situations(draw: st.DrawFn) -> tuple[Plan, Ints, PagePool, Bools]:
    """A pool in use, contexts that it holds, and a plan that may be far too large."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    slots, page_size = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 5, 40]))
    capacity, most = 40, 12
    per_slot = -(-capacity // page_size)
    pool = PagePool(int(rng.integers(per_slot, slots * per_slot + 1)), page_size, slots, capacity)
    contexts = np.zeros(slots, np.int64)
    decoding = np.zeros(slots, np.bool_)
    for slot in range(slots):
        context = int(rng.integers(1, capacity - most))
        if rng.random() < 0.8 and pool.reserve(slot, context):
            contexts[slot], decoding[slot] = context, rng.random() < 0.8
    nodes, depth = rng.integers(0, most + 1, slots), rng.integers(0, 5, slots)
    return plan_of(nodes, depth, rng.integers(1, 5, slots)), contexts, pool, decoding


@settings(max_examples=200)
@given(situations())
def test_plans_are_fitted_by_the_rule(situation: tuple[Plan, Ints, PagePool, Bools]) -> None:
    plan, contexts, pool, decoding = situation
    before = [np.copy(field) for field in plan[:4]]
    tables, free = pool.tables.copy(), pool.free_pages
    fitted, shrunk = fit_plan(plan, contexts, pool, decoding)
    for old, field in zip(before, plan[:4], strict=True):
        np.testing.assert_array_equal(old, field, err_msg="the plan given was changed")
    assert (pool.tables == tables).all() and pool.free_pages == free

    scored = np.where(plan.depth > 0, plan.width + (plan.depth - 1) * plan.width**2, 0)
    wanted = np.where(decoding, np.minimum(plan.nodes, scored), 0)
    expected = rule(wanted.tolist(), contexts, pool, decoding)
    assert fitted.nodes[decoding].tolist() == np.array(expected)[decoding].tolist()
    assert shrunk == int(wanted.sum()) - sum(expected)
    assert (fitted.nodes >= 0).all() and (fitted.nodes <= plan.nodes).all()
    assert (fitted.nodes[~decoding] == plan.nodes[~decoding]).all()
    gone = decoding & (fitted.nodes == 0)
    assert (fitted.depth == np.where(gone, 0, plan.depth)).all()

    step = np.where(decoding, contexts + 1 + fitted.nodes, 0)
    fits = missing_for_roots(contexts, pool, decoding) == 0
    assert pool.reserve_all(step) is fits, "what is fitted can be reserved"
    if not fits:
        assert not fitted.nodes[decoding].any()
    elif shrunk:
        assert pool.free_pages == 0, "nodes were taken though a page is free"


def test_a_plan_that_fits_is_left_alone() -> None:
    pool = PagePool(20, 4, 3, 40)
    on = np.ones(3, np.bool_)
    fitted, shrunk = fit_plan(plan_of(np.array([5, 0, 9])), np.array([3, 9, 1]), pool, on)
    assert (fitted.nodes.tolist(), fitted.depth.tolist(), shrunk) == ([5, 0, 9], [4, 0, 4], 0)


def test_the_largest_trees_shrink_first() -> None:
    pool = PagePool(40, 1, 3, 40)
    contexts, on = np.array([4, 4, 4]), np.ones(3, np.bool_)
    assert pool.reserve_all(contexts)
    pool._unowned = 3 + 14  # the roots and 14 nodes
    fitted, shrunk = fit_plan(plan_of(np.array([10, 2, 10])), contexts, pool, on)
    assert (fitted.nodes.tolist(), shrunk) == ([6, 2, 6], 8)
    pool._unowned -= 1  # of equals the highest slot gives
    assert fit_plan(plan_of(np.array([10, 2, 10])), contexts, pool, on)[0].nodes[2] == 5


def test_with_one_page_a_request_trees_are_never_short() -> None:
    pool = PagePool.sized(3, 40)
    on, contexts = np.ones(3, np.bool_), np.array([20, 29, 39])
    assert pool.reserve_all(contexts)
    fitted, shrunk = fit_plan(plan_of(np.full(3, 10)), contexts, pool, on)
    # The last has a row for its root and none behind it.
    assert (fitted.nodes.tolist(), fitted.depth.tolist(), shrunk) == ([10, 10, 0], [4, 4, 0], 10)


def test_the_last_in_order_gives_way_until_one_is_left() -> None:
    pool = PagePool(8, 1, 4, 8)
    for slot in (0, 1, 3):
        assert pool.reserve(slot, 2)
    places = {3: (2.0, 5), 2: (9.0, 2), 0: (0.5, 0), 1: (2.0, 7)}
    order = []
    while (slot := victim(places, pool)) >= 0:
        order.append(slot)
        pool.release(slot)
        del places[slot]
    assert order == [1, 3], "slot 2 holds no page, slot 0 is the first"
    # What is left always fits: the pool holds at least one whole request.
    on = np.array([slot in places for slot in range(4)]) & (pool.owned > 0)
    assert missing_for_roots(np.array([7, 0, 0, 0]), pool, on) == 0


@given(situations())
@settings(max_examples=100, deadline=None)
def test_lacking_pages_are_those_of_the_twin(case: tuple[Plan, Ints, PagePool, Bools]) -> None:
    plan, contexts, pool, decoding = case
    arguments = plan.nodes, contexts, pool.owned, pool.page_size, decoding
    assert lacking_pages(*arguments) == twin(*arguments)
