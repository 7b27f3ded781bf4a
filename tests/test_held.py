"""`held`: when it decides, whose plan is whose in between, and whole episodes under it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Bools, Candidates, Controller, Plan, View, uniform_plan
from policies.delegate import defined
from policies.held import held, refit
from tests.controller_episodes import serve
from tests.random_plans import RandomMasks, RandomPlans
from tests.test_features import make_view


def view_of(requests: dict[int, int], classes: dict[int, int] | None = None) -> View:
    """A view in which slots hold these requests, of these classes by request (0 if unnamed)."""
    view = make_view(np.random.default_rng(0))
    active = np.zeros(view.limits.slots, np.bool_)
    request, slo_class = np.full(len(active), -1), np.zeros(len(active), np.int64)
    for slot, name in requests.items():
        active[slot], request[slot] = True, name
        slo_class[slot] = (classes or {}).get(name, 0)
    return view._replace(active=active, request=request, slo_class=slo_class)


def plan_of(view: View, trees: dict[int, tuple[int, int, int]], **changes: Any) -> Plan:
    """Depth, width and nodes by slot."""
    plan = uniform_plan(view.limits, 0, 1, 0)
    for slot, (depth, width, nodes) in trees.items():
        plan.depth[slot], plan.width[slot], plan.nodes[slot] = depth, width, nodes
    return plan._replace(**changes)


def trees(plan: Plan, *slots: int) -> list[tuple[int, ...]]:
    return [(int(plan.depth[s]), int(plan.width[s]), int(plan.nodes[s])) for s in slots]


class Counting(Controller):
    """Depth k in its k-th decision."""

    name = "counting"

    def __init__(self) -> None:
        self.decisions = 0
        self.outcomes = 0

    def plan(self, view: View) -> Plan:
        self.decisions += 1
        return uniform_plan(view.limits, self.decisions, 1, self.decisions)

    def observe(self, outcome: Any) -> None:
        self.outcomes += 1


@pytest.mark.parametrize(("n", "depths"), [(1, [1, 2, 3, 4, 5]), (2, [1, 1, 2, 2, 3])])
def test_it_decides_every_n_iterations(n: int, depths: list[int]) -> None:
    controller, view = held(Counting(), n), view_of({0: 7, 3: 9})
    controller.reset(view.limits)
    assert [int(controller.plan(view).depth[0]) for _ in range(5)] == depths
    controller.reset(view.limits)  # a decision is due at once
    assert controller.plan(view).depth[0] == depths[-1] + 1


def test_every_outcome_is_told() -> None:
    counting = Counting()
    episode = serve("replay", held(counting, 3))
    assert counting.outcomes == len(episode.outcomes)
    assert counting.decisions == -(-len(episode.outcomes) // 3)


def test_a_request_keeps_its_plan_in_another_slot() -> None:
    then, now = view_of({0: 7, 1: 8}), view_of({1: 7, 2: 8})
    plan = plan_of(then, {0: (3, 2, 5), 1: (6, 1, 6)})
    fitted = refit(plan, then, now)
    assert trees(fitted, 1, 2) == [(3, 2, 5), (6, 1, 6)]


def test_a_newcomer_gets_the_middle_of_its_class_or_of_all() -> None:
    classes = {1: 0, 2: 0, 3: 0, 4: 1, 9: 0, 10: 2}
    then = view_of({0: 1, 1: 2, 2: 3, 3: 4}, classes)
    plan = plan_of(then, {0: (1, 1, 1), 1: (2, 3, 9), 2: (6, 8, 10), 3: (8, 8, 64)})
    margin = np.ones(then.limits.slots)
    margin[:4] = 0.5, 0.7, 0.6, 0.9
    plan = plan._replace(margin=margin)
    now = view_of({0: 1, 1: 9, 2: 10, 3: 4}, classes)
    fitted = refit(plan, then, now)
    assert trees(fitted, 0, 3) == [(1, 1, 1), (8, 8, 64)]
    assert trees(fitted, 1) == [(2, 3, 9)] and fitted.margin[1] == 0.7
    assert trees(fitted, 2) == [(4, 5, 9)]  # of 1, 2, 6, 8; 1, 3, 8, 8; 1, 9, 10, 64
    assert fitted.margin[2] == 0.9


@pytest.mark.parametrize(
    ("budget", "roots", "left"),
    [
        (6, 2, 6),  # as many run
        (6, 3, 5),  # a root more, a node less
        (6, 1, 7),
        (1, 5, 0),  # never negative
        (10, 5, 10),  # bound nobody, so it binds nobody
        (1000, 5, 1000),
    ],
)
def test_roots_and_nodes_stay_within_what_they_were(budget: int, roots: int, left: int) -> None:
    then = view_of({0: 0, 1: 1})
    plan = plan_of(then, {0: (5, 1, 5), 1: (5, 1, 5)}, node_budget=budget)
    now = view_of({slot: slot for slot in range(roots)})
    assert refit(plan, then, now).node_budget == left


def test_a_budget_in_steps_and_the_prompts_are_left_to_the_engine() -> None:
    then, now = view_of({0: 0}), view_of({0: 5, 1: 6})
    plan = plan_of(then, {0: (2, 1, 2)}, budget_steps=1.5, prefill_tokens=9, max_running=3)
    fitted = refit(plan, then, now)
    assert (fitted.budget_steps, fitted.prefill_tokens, fitted.max_running) == (1.5, 9, 3)


@given(st.integers(0, 2**32 - 1))
def test_who_stayed_has_his_own_and_all_plans_are_somebodys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    then, now = make_view(rng), make_view(rng)
    now = now._replace(request=rng.permutation(24)[:16])
    plan = RandomPlans(rng).plan(then)
    if not then.active.any():
        return
    fitted = refit(plan, then, now)
    slot_of = {int(then.request[s]): s for s in np.flatnonzero(then.active)}
    for slot in np.flatnonzero(now.active):
        for name in ("depth", "width", "nodes"):
            planned, got = getattr(plan, name), getattr(fitted, name)[slot]
            if (old := slot_of.get(int(now.request[slot]))) is not None:
                assert got == planned[old]
            else:
                among = planned[then.active]
                assert among.min() <= got <= among.max()


def test_plans_that_the_engine_writes_into_stay_as_decided() -> None:
    controller, view = held(Counting(), 4), view_of({0: 7})
    controller.reset(view.limits)
    for _ in range(3):
        plan = controller.plan(view)
        assert plan.depth[0] == 1
        plan.depth[:] = 99


class Choosing(Counting):
    """Keeps everything."""

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        self.selections = getattr(self, "selections", 0) + 1
        return np.ones(candidates.parent.shape, np.bool_)


@pytest.mark.parametrize("inner", [Counting(), Choosing(), RandomMasks(np.random.default_rng(0))])
def test_it_has_what_the_inner_controller_defines(inner: Controller) -> None:
    inner.needs_profile, inner.needs_divergence, inner.decision_s = True, True, 0.25
    controller = held(inner, 2)
    assert defined(controller) == defined(inner)
    assert controller.needs_profile and controller.needs_divergence
    assert controller.decision_s == 0.25 and controller.lossless


def test_selection_goes_on_in_every_iteration() -> None:
    choosing = Choosing()
    episode = serve("replay", held(choosing, 1000))
    assert choosing.decisions == 1 and choosing.selections == len(episode.outcomes) > 3


@pytest.mark.parametrize("backend", ["live", "replay"])
def test_texts_are_those_of_ordinary_decoding(backend: str) -> None:
    from policies.fixed import Autoregressive

    rng = np.random.default_rng(1)
    episode = serve(backend, held(RandomPlans(rng), 3))
    assert episode.texts == serve(backend, Autoregressive()).texts
