"""`shadow`: it compares, never acts, and nothing that the other one does reaches the active one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.protocol import Controller, Outcome, Plan, View, uniform_plan
from policies import registry
from policies.delegate import defined, delegating
from policies.fixed import FixedTree
from policies.shadow import Shadow, shadow
from tests.controller_episodes import serve
from tests.random_plans import RandomMasks
from tests.test_features import make_view

VIEW = make_view(
    np.random.default_rng(0),
    active=np.arange(16) < 4,
    remaining_tokens=np.array([99, 99, 99, 3] * 4),
    pricing=None,
)


class Listed(Controller):
    """Trees by slot, given beforehand; the rest decodes ordinarily."""

    name = "listed"

    def __init__(self, *trees: tuple[int, int, int], **changes: Any) -> None:
        self.trees, self.changes = trees, changes

    def plan(self, view: View) -> Plan:
        plan = uniform_plan(view.limits, 0, 1, 0)
        for slot, tree in enumerate(self.trees):
            plan.depth[slot], plan.width[slot], plan.nodes[slot] = tree
        return plan._replace(**self.changes)


def beside(active: Controller, other: Controller) -> Shadow:
    """Both, reset."""
    made = delegating(Shadow, active)(active, other)
    made.reset(VIEW.limits)
    return made


def test_differences_are_the_others_less_the_active_ones_by_hand() -> None:
    """Slot 2 drafts for one of them only; slot 3 has 3 tokens left, so both draft 2 steps there."""
    active = Listed((4, 1, 4), (2, 2, 6), (0, 1, 0), (5, 1, 5))
    other = Listed((4, 1, 4), (5, 4, 9), (1, 1, 1), (6, 1, 5))
    pair = beside(active, other)
    assert pair.plan(VIEW).depth[1] == 2
    told = pair.comparison()
    assert (told.decisions, told.compared, told.errors, told.unpriced) == (1, 1, 0, 0)
    assert told.equal_plans == 0.0 and told.equal_trees == 2 / 4
    assert told.depth_difference == (0 + 3 + 1 + 0) / 4
    assert told.width_difference == (0 + 2 + 0) / 3
    assert told.nodes_difference == (0 + 3 + 1 + 0) / 4
    assert math.isnan(told.step_s) and math.isnan(told.other_step_s)  # no profile


def test_equal_plans_are_equal_whatever_stands_beside_depth_0() -> None:
    pair = beside(Listed((4, 1, 4), (0, 1, 0)), Listed((4, 1, 4), (0, 7, 9)))
    for _ in range(3):
        pair.plan(VIEW)
    told = pair.comparison()
    assert told.compared == 3 and told.equal_plans == told.equal_trees == 1.0


def test_another_margin_is_another_plan() -> None:
    margin = np.full(VIEW.limits.slots, 0.5)
    pair = beside(Listed((4, 1, 4)), Listed((4, 1, 4), margin=margin))
    pair.plan(VIEW)
    assert pair.comparison().equal_trees == 0.0


def test_nothing_was_compared_yet() -> None:
    told = beside(Listed(), Listed()).comparison()
    assert told.decisions == told.compared == 0 and math.isnan(told.equal_plans)


class Meddling(Controller):
    """Writes into whatever it is handed."""

    name = "meddling"

    def plan(self, view: View) -> Plan:
        for field in view:
            if isinstance(field, np.ndarray):
                field[...] = 0
        return uniform_plan(view.limits, 1, 1, 1)

    def observe(self, outcome: Outcome) -> None:
        for field in outcome:
            if isinstance(field, np.ndarray):
                field[...] = 0


def test_it_cannot_write_into_what_the_active_one_sees() -> None:
    seen = VIEW._replace(active=VIEW.active.copy(), request=VIEW.request.copy())
    pair = beside(Listed((4, 1, 4)), Meddling())
    assert pair.plan(seen).depth[0] == 4
    assert np.array_equal(seen.active, VIEW.active)
    assert np.array_equal(seen.request, VIEW.request)


class Raising(Controller):
    """Raises in one of its methods."""

    name = "raising"

    def __init__(self, where: str) -> None:
        self.where = where

    def reset(self, limits: Any) -> None:
        if self.where == "reset":
            raise ZeroDivisionError

    def plan(self, view: View) -> Plan:
        if self.where == "plan":
            raise ZeroDivisionError
        plan = uniform_plan(view.limits, 2, 1, 2)
        return plan._replace(margin=plan.margin[:3]) if self.where == "shape" else plan

    def observe(self, outcome: Outcome) -> None:
        if self.where == "observe":
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("where", "every", "compared"),
    [
        ("plan", True, False),
        ("shape", True, False),
        ("observe", True, True),
        ("reset", False, False),
    ],
)
def test_what_it_raises_stays_here(
    where: str, every: bool, compared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    active = registry.make("chain(3)")
    pair = delegating(Shadow, active)(active, Raising(where))
    episode = serve("replay", pair)
    assert episode.course == serve("replay", registry.make("chain(3)")).course
    told = pair.comparison()
    assert told.decisions == len(episode.course)
    assert told.errors == (told.decisions if every else 1)
    assert told.compared == (told.decisions if compared else 0)
    assert len(caplog.records) == 1  # said once


def test_one_that_needs_a_profile_is_not_asked_without_one() -> None:
    pair = shadow(Listed((4, 1, 4)), "adaserve")
    pair.reset(VIEW.limits)
    pair.plan(VIEW)
    told = pair.comparison()
    assert (told.unpriced, told.errors, told.compared) == (1, 0, 0)


@pytest.mark.parametrize("active", ["chain(3)", "adaserve", "specdec-stop"])
def test_it_never_acts(active: str) -> None:
    pair = registry.make(f"shadow('eagle3(4, 4, 8)'):{active}")
    assert isinstance(pair, Shadow)
    assert serve("replay", pair).course == serve("replay", registry.make(active)).course
    assert pair.comparison().compared > 0


def test_steps_are_priced_by_the_profile() -> None:
    pair = registry.make("shadow('eagle3(8, 8, 64)'):chain(1)")
    assert isinstance(pair, Shadow)
    serve("replay", pair)
    told = pair.comparison()
    assert 0 < told.step_s < told.other_step_s


def test_a_budget_in_steps_is_priced_as_the_engine_would_size_it() -> None:
    class Bounded(FixedTree):
        def plan(self, view: View) -> Plan:
            return super().plan(view)._replace(budget_steps=1.0 + 1e-9)

    active = registry.make("chain(1)")
    free = delegating(Shadow, active)(active, FixedTree("free", 4, 4, 32))
    bound = delegating(Shadow, active)(active, Bounded("bound", 4, 4, 32))
    for pair in (free, bound):
        serve("replay", pair)
    assert bound.comparison().other_step_s < free.comparison().other_step_s


def test_traits_and_names() -> None:
    pair = shadow(RandomMasks(np.random.default_rng(0)), "dsde")
    assert defined(pair) == ["extend", "select"] and pair.needs_divergence
    assert (
        not shadow(Listed(), "adaserve").needs_profile
        and defined(shadow(Listed(), "adaserve")) == []
    )
    assert shadow(Listed(), "adaptivespec").lossless  # the other never acts
    spec = "shadow('chain(2)'):held(3):adaserve"
    assert registry.make(spec).name == spec
