"""`shielded`: what it clips, whoever fails gives way, when the controller returns.

What its two guards look at is tested in test_novelty.py and test_outcome_guard.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Bools, Candidates, Controller, Limits, Outcome, Plan, View, uniform_plan
from policies import registry
from policies.delegate import defined
from policies.fixed import Autoregressive, Chain
from policies.shielded import LATE_S, Shielded, checked, for_serving, shielded
from tests.controller_episodes import serve
from tests.golden_controllers import FOLDER as GOLDEN
from tests.random_plans import RandomMasks, RandomPlans
from tests.test_features import make_view

GIVEN, FALLBACK = 5, 2  # depths, to see who acted
VIEW = make_view(np.random.default_rng(0), remaining_tokens=np.full(16, 99))


class Given(Controller):
    """A chain that goes wrong on request."""

    name = "given"

    def __init__(self, wrong: Callable[[Plan], Plan] = lambda plan: plan) -> None:
        self.wrong = wrong
        self.told = 0

    def plan(self, view: View) -> Plan:
        return self.wrong(uniform_plan(view.limits, GIVEN, 1, GIVEN))

    def observe(self, outcome: Outcome) -> None:
        self.told += 1


def guarded(controller: Controller, **params: Any) -> Shielded:
    made = shielded(controller, fallbacks=(f"chain({FALLBACK})",), **params)
    made.reset(VIEW.limits)
    return made


def depth(controller: Controller, view: View = VIEW) -> int:
    return int(controller.plan(view).depth[view.active].max())


def raising(plan: Plan) -> Plan:
    raise ZeroDivisionError("of mine")


def spoilt(**values: Any) -> Callable[[Plan], Plan]:
    """The plan with a field of the first slot that decodes, or a scalar, replaced."""

    def spoil(plan: Plan) -> Plan:
        for name, value in values.items():
            old = getattr(plan, name)
            if isinstance(old, np.ndarray):
                value = np.where(np.arange(len(old)) == np.argmax(VIEW.active), value, old)
            plan = plan._replace(**{name: value})
        return plan

    return spoil


def outcome_of(emitted: int = 10, valid: int = 10) -> Outcome:
    """An iteration of everybody with an objective, as many tokens each."""
    nobody = np.zeros(VIEW.limits.slots, np.int64)
    names = [name for name in Outcome._fields if name not in Outcome._field_defaults]
    return Outcome(**dict.fromkeys(names, 0))._replace(  # type: ignore[arg-type]
        ran=VIEW.active.copy(), accepted_length=nobody + emitted, valid_tokens=nobody + valid
    )


# -- the plan ------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_no_plan_outside_the_limits_leaves_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    view = make_view(rng)
    plan, outside = checked(RandomPlans(rng, margin=0.5).plan(view), view, lossless=True)
    again, nothing = checked(plan, view, lossless=True)
    assert nothing == 0 and outside >= 0 and (plan.margin >= 1).all()
    assert all(np.array_equal(a, b) for a, b in zip(plan[:4], again[:4], strict=True))
    assert 0 <= plan.node_budget <= view.limits.slots * view.limits.max_nodes


def test_what_it_clips_is_counted_and_nobody_gives_way() -> None:
    controller = guarded(Given(spoilt(depth=99, margin=0.5)))
    assert depth(controller) == VIEW.limits.max_depth
    assert controller.clipped == 2 and controller.fallbacks_so_far == 0


def test_a_lossy_controller_keeps_its_margin() -> None:
    lossy = Given(spoilt(margin=0.5))
    lossy.lossless = False
    controller = guarded(lossy)
    assert controller.plan(VIEW).margin.min() == 0.5 and not controller.lossless


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (spoilt(depth=math.nan), "nan"),
        (spoilt(nodes=math.inf), "nan"),
        (spoilt(margin=math.nan), "nan"),
        (spoilt(node_budget=math.nan), "nan"),
        (spoilt(budget_steps=math.nan), "nan"),
        (spoilt(margin=0.0), "error"),
        (spoilt(budget_steps=-1.0), "error"),
        (lambda plan: plan._replace(width=plan.width[:3]), "error"),
        (lambda plan: plan._replace(width=None), "error"),
        (lambda plan: None, "error"),
        (raising, "error"),
    ],
)
def test_a_plan_that_cannot_be_used(wrong: Callable[[Plan], Plan], reason: str) -> None:
    controller = guarded(Given(wrong))
    assert depth(controller) == FALLBACK and controller.level == 1
    assert controller.fallbacks == {**dict.fromkeys(controller.fallbacks, 0), reason: 1}


def test_nan_in_idle_slots_means_nothing() -> None:
    idle = Given(lambda plan: plan._replace(depth=np.where(VIEW.active, plan.depth, math.nan)))
    controller = guarded(idle)
    assert depth(controller) == GIVEN and controller.fallbacks_so_far == 0


# -- the order of fallbacks ----------------------------------------------------------------------


def test_it_goes_down_the_order_and_ends_without_speculation() -> None:
    levels = (Given(raising), Given(spoilt(depth=math.nan)))
    controller = Shielded(Given(raising), levels)
    controller.reset(VIEW.limits)
    assert depth(controller) == 0 and controller.level == 3
    assert controller.fallbacks["error"] == 2 and controller.fallbacks["nan"] == 1
    controller.observe(outcome_of())  # nobody is there to be told
    assert depth(controller) == 0 and controller.fallbacks_so_far == 3


def test_a_fallback_that_needs_a_profile_is_passed_over_without_one() -> None:
    controller = shielded(Given(raising), fallbacks=("adaserve", "chain(2)"))
    controller.reset(VIEW.limits)
    assert VIEW.pricing is None and depth(controller) == FALLBACK
    assert controller.fallbacks_so_far == 1


def test_the_default_order_is_analytic_then_fixed_then_off() -> None:
    controller = registry.make("shielded:adaserve")
    assert isinstance(controller, Shielded)
    given, analytic, fixed, off = controller.levels
    assert given.needs_profile and analytic.needs_profile
    assert isinstance(fixed, Chain) and isinstance(off, Autoregressive)


# -- when it returns -----------------------------------------------------------------------------


def acted(controller: Shielded, decisions: int) -> list[int]:
    depths = []
    for _ in range(decisions):
        depths.append(depth(controller))
        controller.observe(outcome_of())
    return depths


def test_it_returns_after_the_dwell_and_later_each_time_that_it_fails_again() -> None:
    controller = guarded(Given(raising), dwell=3)
    for wait in (3, 6, 12, 24, 48, 96, 96):
        before = controller.fallbacks_so_far
        assert acted(controller, wait) == [FALLBACK] * wait
        assert controller.fallbacks_so_far == before + 1
    assert controller.fallbacks["error"] == 7


def test_after_a_clean_stretch_the_dwell_is_short_again() -> None:
    script = iter([*[True] * 2, *[False] * 8, True])
    given = Given(lambda plan: raising(plan) if next(script, False) else plan)
    controller = guarded(given, dwell=2)
    assert acted(controller, 2 + 4) == [FALLBACK] * 6  # failed, waited 2, failed, waited 4
    assert acted(controller, 8) == [GIVEN] * 8
    assert acted(controller, 3) == [FALLBACK, FALLBACK, GIVEN]


def test_who_acted_is_told() -> None:
    given = Given(iter_wrong(0))
    controller = guarded(given, dwell=4)
    assert acted(controller, 7) == [FALLBACK] * 4 + [GIVEN] * 3
    assert given.told == 3


def iter_wrong(*bad: int) -> Callable[[Plan], Plan]:
    """Raises in the decisions of these numbers."""
    count: Iterator[int] = iter(range(10**6))
    return lambda plan: raising(plan) if next(count) in bad else plan


def test_a_new_episode_begins_with_the_controller() -> None:
    controller = guarded(Given(iter_wrong(0)))
    assert depth(controller) == FALLBACK
    controller.reset(VIEW.limits)
    assert depth(controller) == GIVEN and controller.fallbacks_so_far == 0


# -- late ----------------------------------------------------------------------------------------


class Clock:
    """Goes on by `step_s` every time that it is read."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.mark.parametrize(("step_s", "late"), [(0.004, 0), (0.006, 1)])
def test_a_late_decision_is_carried_out_and_the_next_one_is_anothers(
    step_s: float, late: int
) -> None:
    controller = Shielded(Given(), (Chain(FALLBACK),), late_s=0.005, clock=Clock(step_s))
    controller.reset(VIEW.limits)
    assert depth(controller) == GIVEN
    controller.observe(outcome_of())
    assert controller.fallbacks["late"] == late
    assert depth(controller) == (FALLBACK if late else GIVEN)


def test_it_may_be_late_some_times_in_a_row() -> None:
    clock = Clock(0.0)
    controller = Shielded(Given(), (Chain(FALLBACK),), late_s=0.005, late_times=3, clock=clock)
    controller.reset(VIEW.limits)
    depths = []
    for step_s in (0.006, 0.006, 0.001, 0.006, 0.006, 0.006, 0.001):
        clock.step_s = step_s
        depths.append(depth(controller))
        controller.observe(outcome_of())
    assert depths == [GIVEN] * 6 + [FALLBACK] and controller.fallbacks["late"] == 1


def test_selection_counts_towards_the_decision() -> None:
    class Choosing(Given):
        def select(self, view: View, plan: Plan, candidates: Candidates) -> None:
            return None

    controller = type(shielded(Choosing()))(Choosing(), (), late_s=0.005, clock=Clock(0.003))
    controller.reset(VIEW.limits)
    plan = controller.plan(VIEW)
    controller.select(VIEW, plan, candidates_of(4))
    controller.observe(outcome_of())
    assert controller.fallbacks["late"] == 1  # 0.003 for either


def candidates_of(count: int) -> Candidates:
    parent = np.full((VIEW.limits.slots, count), -1)
    return Candidates(parent[:, 0] + 1, parent, parent, parent, np.ones(parent.shape))


# -- select, extend, observe ---------------------------------------------------------------------


class Breaking(Given):
    """Answers wrongly while drafting, or when it is told."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools | None:
        if self.where == "extend":
            raise KeyError("depth")
        return np.ones(3, np.bool_) if self.where == "shape" else None

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Any:
        if self.where == "select":
            raise KeyError("nodes")
        return np.ones(candidates.parent.shape) if self.where == "floats" else None

    def observe(self, outcome: Outcome) -> None:
        if self.where == "observe":
            raise KeyError("outcome")


@pytest.mark.parametrize("where", ["extend", "shape", "select", "floats", "observe"])
@pytest.mark.parametrize("backend", ["live", "replay"])
def test_what_it_raises_later_on_changes_no_text(where: str, backend: str) -> None:
    controller = shielded(Breaking(where), fallbacks=(f"chain({FALLBACK})",), dwell=2)
    episode = serve(backend, controller)
    assert controller.fallbacks["error"] >= 2 and controller.fallbacks_so_far >= 2
    assert episode.texts == serve(backend, Autoregressive()).texts
    assert episode.counters["clipped"] == 0


@pytest.mark.parametrize(
    ("inner", "fallbacks", "expected"),
    [
        (Given(), ("chain(2)",), []),
        (Given(), ("adaserve",), ["select"]),
        (Given(), ("specdec-stop", "chain(2)"), ["extend"]),
        (RandomMasks(np.random.default_rng(0)), (), ["extend", "select"]),
    ],
)
def test_the_engine_sees_what_any_of_them_defines(
    inner: Controller, fallbacks: tuple[str, ...], expected: list[str]
) -> None:
    assert defined(shielded(inner, fallbacks)) == expected


def test_divergence_is_worked_out_where_a_fallback_needs_it() -> None:
    assert shielded(Given(), ("dsde",)).needs_divergence
    assert not shielded(Given()).needs_divergence and not shielded(Given()).needs_profile
    assert not shielded(Given(), ("adaptivespec",)).lossless


# -- serving -------------------------------------------------------------------------------------


def test_exported_controllers_are_served_in_a_shield() -> None:
    folder = str(GOLDEN / "tiers")
    controller = for_serving(folder)
    assert isinstance(controller, Shielded) and controller.late_s == LATE_S
    assert controller.late_times == 3 and len(controller.levels) == 4
    assert controller.levels[0].name == "tiers"
    held = for_serving(f"held(4):{folder}")
    assert isinstance(held, Shielded) and held.controller.name == "held(4):tiers"
    own = for_serving(f"shielded(dwell=5):{folder}")
    assert isinstance(own, Shielded) and own.dwell == 5 and own.late_s is None
    assert not isinstance(for_serving("chain(3)"), Shielded)


# -- names and whole episodes --------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        "shielded:chain(4)",
        "shielded(fallbacks=(), dwell=4):chain(4)",
        "shielded(fallbacks=('chain(1)',), late_s=0.01, expected=0.9):held(2):adaserve",
    ],
)
def test_names_can_be_typed_again(spec: str) -> None:
    assert registry.make(spec).name == spec


@pytest.mark.parametrize("spec", ["chain(3)", "adaserve", "specdec-stop"])
def test_a_sound_controller_is_served_as_without_a_shield(spec: str) -> None:
    controller = registry.make(f"shielded:{spec}")
    assert isinstance(controller, Shielded)
    assert serve("replay", controller).course == serve("replay", registry.make(spec)).course
    assert controller.fallbacks_so_far == 0


def test_a_reset_that_fails_is_not_covered_up() -> None:
    class Unready(Given):
        def reset(self, limits: Limits) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shielded(Unready()).reset(VIEW.limits)
