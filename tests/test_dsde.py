"""DSDE's lengths, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UserError
from engine.kernels.steady_chains import chains, note
from engine.kernels.variance_ratio import variance_ratio, weighted_variance
from engine.protocol import Controller, Limits
from policies.dsde import Dsde, nobody
from tests.test_adaptivespec import LIMITS, outcome_of, view_of
from tests.twins import variance_ratio as twin
from tests.twins.steady_chains import Course, length, scale

VIEW = view_of([0.5, 0.5, 0.5])


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, float)


def test_a_weighted_variance() -> None:
    # Of 1 and 3, weighted 1/2 and 1: mean 3.5 / 1.5 = 7/3; (16/9 · 1/2 + 4/9 · 1) / 1.5 = 8/9. Of
    # the last alone: 0. What stands before the window does not count.
    ages = np.array([[2, 1, 0], [2, 1, 0]])
    found = weighted_variance(rows([99, 1, 3], [99, 1, 3]), ages, np.array([2, 1]), 0.5)
    assert found == pytest.approx([8 / 9, 0.0])
    # Without decay it is the ordinary variance.
    history, ages = np.random.default_rng(0).random((4, 7)), np.tile(np.arange(7), (4, 1))
    assert weighted_variance(history, ages, np.full(4, 7), 1.0) == pytest.approx(history.var(1))


def test_the_ratio_of_variances() -> None:
    # Six entries with windows 2 and 6, no decay. Of 0 0 0 0 1 3 the last two vary by 1; all have
    # mean 2/3 and variance 10/6 - 4/9 = 11/9: 9/11. Once only 3 are known (0, 1, 3), the window of
    # their latest third is 1, which does not vary. Fewer than two: 0. Never varied: 20.
    history = rows([0, 0, 0, 0, 1, 3], [0, 1, 3, 9, 9, 9], [3, 9, 9, 9, 9, 9], [2] * 6)
    found = variance_ratio(history, np.array([6, 3, 1, 6]), short=2, decay=1.0)
    assert found == pytest.approx([9 / 11, 0.0, 0.0, 20.0])
    # After eight entries the two newest stand in front, where the two oldest stood.
    turned = variance_ratio(rows([1, 3, 0, 0, 0, 0]), np.array([8]), short=2, decay=0.9)
    straight = variance_ratio(rows([0, 0, 0, 0, 1, 3]), np.array([6]), short=2, decay=0.9)
    assert turned == pytest.approx(straight)


def test_the_ratio_is_the_twins() -> None:
    rng = np.random.default_rng(3)
    for size, short in ((2, 1), (9, 4), (30, 10), (30, 30)):
        history = rng.exponential(size=(40, size)) * (rng.random((40, 1)) < 0.9)
        count, decay = rng.integers(0, 3 * size, 40), float(rng.uniform(0.3, 1.0))
        found = variance_ratio(history, count, short, decay)
        asked = zip(history.tolist(), count.tolist(), strict=True)
        assert found == pytest.approx([twin.variance_ratio(h, c, short, decay) for h, c in asked])


def test_the_scale_of_a_divergence() -> None:
    # e^(2 · 0) - 1 = 0; e^(2 · ln 2 / 2) - 1 = 1; and nothing overflows.
    assert scale(0.0, 2.0) == 0.0 and scale(math.log(2) / 2, 2.0) == pytest.approx(1.0)
    assert math.isfinite(scale(1e9, 2.0))


def test_lengths_between_their_bounds() -> None:
    # (1 - 0.25) · 6 + 2 = 6.5, so 7; (1 - 0.5) · 6 + 2 = 5; at 1 and beyond the shortest.
    assert [length(unrest, 2, 8) for unrest in (0.0, 0.25, 0.5, 1.0, 7.0)] == [8, 7, 5, 2, 2]


@given(st.lists(st.floats(0, 3), min_size=2, max_size=2), st.integers(1, 4), st.integers(0, 9))
def test_less_steady_is_never_longer(unrest: list[float], shortest: int, more: int) -> None:
    calm, wild = (length(value, shortest, shortest + more) for value in sorted(unrest))
    assert shortest <= wild <= calm <= shortest + more


def test_a_calibration_and_its_bound() -> None:
    # Chains of 2: 1 of 2 accepted, so 2 again; 2 of 2, so 4; 3 of 4. The most is 3. The mean of
    # 0.2, 0.4 and 0.6 nats is 2/3 of the largest: 3 · (1 + 2/3) = 5; half the stretch: 3 · 4/3 = 4.
    for stretch, bound in ((1.0, 5), (0.5, 4)):
        course = Course(2, 30)
        for nats, drafted, accepted in ((0.2, 2, 1), (0.4, 2, 2), (0.6, 4, 3)):
            course.note(nats, drafted, accepted, 8, stretch, 8)
        assert course.steps == 4 and course.drafted == 8 and course.most_accepted == 3
        assert course.longest == bound and course.told == [0.2, 0.4, 0.6]
        course.note(math.nan, 4, 4, 8, stretch, 8)
        assert course.told == [0.2, 0.4, 0.6] and course.steps == 4


def test_what_the_kernels_learn_and_plan_is_the_twins() -> None:
    rng = np.random.default_rng(5)
    slots, window = 20, 9
    rows = nobody(slots, window)
    rows.steps[:], rows.longest[:] = 4, -1
    courses = [Course(4, window) for _ in range(slots)]
    here = rng.random(slots) < 0.9
    settled = 0
    for _ in range(60):
        drafted = rng.integers(0, 9, slots)
        accepted = rng.integers(0, drafted + 1)
        nats = np.where(rng.random(slots) < 0.2, math.nan, rng.exponential(0.3, slots))
        offered, kept = (np.arange(8) < count[:, None] for count in (drafted, accepted))
        note(here, offered, kept, nats, 40, 0.5, 8, rows)
        for slot in np.flatnonzero(here).tolist():
            told = float(nats[slot]), int(drafted[slot]), int(accepted[slot])
            courses[slot].note(*told, 40, 0.5, 8)
        depth = np.full(slots, -1)
        found = chains(here, rows, 2, 8, 2.0, 3, 0.85, depth)
        wanted = [
            course.chain(2, 8, 2.0, 3, 0.85) if mine else -1
            for course, mine in zip(courses, here.tolist(), strict=True)
        ]
        assert depth.tolist() == wanted
        done = [mine and c.longest is not None for c, mine in zip(courses, here, strict=True)]
        settled = sum(done)
        assert found == (settled, sum(n for n, over in zip(wanted, done, strict=True) if over))
    assert settled == here.sum()


def test_chains_of_a_batch_by_hand() -> None:
    # Windows of 2 and 4 without decay, to be added up by hand. A calibration is over at once: all
    # accept 4 of 4 without any divergence, so that SL_max = 4 · (1 + 0).
    controller = Dsde(calibration=1, decay=1.0, short=2, long=4)
    assert controller.plan(VIEW).depth.tolist() == [4, 4, 4]
    half, third = math.log(1.5) / 2, math.log(4 / 3) / 2
    told = [
        (0.0, 0.0, math.nan),
        (0.0, 0.0, math.nan),
        (0.0, 0.0, math.nan),
        (half, third, math.nan),
    ]
    for nats in told:
        plan = controller.plan(VIEW)
        controller.observe(outcome_of(plan.depth, plan.depth, LIMITS, divergence=np.array(nats)))
    # Of (0, 0, 0, k) the last two vary by k² / 4, all four by 3 k² / 16: WVIR = 4/3. SF = 1.5 - 1 =
    # 1/2 and 1/3. So SF · WVIR = 2/3 and 4/9: 2 + 1/3 · 2 and 2 + 5/9 · 2, rounded up 3 and 4. The
    # third drafter cannot tell: 4. The mean of 3, 4 and 4 rounded up is 4, which caps nobody.
    assert controller.plan(VIEW).depth.tolist() == [3, 4, 4]
    assert controller.plan(VIEW).nodes.tolist() == [3, 4, 4]


def settled(*longest: int, capped: bool = True) -> Dsde:
    """Requests without any divergence, so that each drafts its SL_max."""
    controller = Dsde(calibration=1, capped=capped)
    depth = np.array([4, 4, 4])
    controller.plan(VIEW)
    controller.observe(outcome_of(np.full(3, 8), longest, LIMITS, divergence=depth * math.nan))
    return controller


def test_nobody_drafts_longer_than_the_batchs_mean_rounded_up() -> None:
    # (8 + 3 + 2) / 3 = 4.33, so 5.
    assert settled(8, 3, 2).plan(VIEW).depth.tolist() == [5, 3, 2]
    assert settled(8, 3, 2, capped=False).plan(VIEW).depth.tolist() == [8, 3, 2]
    # SL_max is no less than SL_min; who is new begins with the batch's last cap, 4 where none is.
    controller = settled(8, 3, 0)
    assert controller.plan(VIEW).depth.tolist() == [5, 3, 2]
    later = view_of([0.5, 0.5, 0.5], ids=[0, 5, 6])
    assert controller.plan(later).depth.tolist() == [8, 5, 5]
    controller.reset(LIMITS)
    assert controller.plan(later).depth.tolist() == [4, 4, 4]


def test_an_iteration_that_could_not_draft_changes_nothing() -> None:
    controller = settled(8, 3, 2)
    before = controller.plan(VIEW).depth.tolist()
    controller.observe(outcome_of([0, 0, 0], [0, 0, 0], LIMITS, divergence=np.full(3, 0.5)))
    assert controller.plan(VIEW).depth.tolist() == before
    controller.observe(outcome_of([5, 3, 2], [0, 0, 0], LIMITS, divergence=np.full(3, 0.5)))
    controller.observe(outcome_of([5, 3, 2], [0, 0, 0], LIMITS, divergence=np.full(3, 0.5)))
    assert controller.plan(VIEW).depth.tolist() != before


def test_it_asks_for_the_divergence() -> None:
    assert Dsde.needs_divergence and not Controller.needs_divergence


def test_small_limits_hold() -> None:
    controller = Dsde()
    view = VIEW._replace(limits=Limits(3, 1, 1, 1))
    assert controller.plan(view).depth.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shortest": 0}, "shortest is 0"),
        ({"first": 2.0}, "first is 2.0"),
        ({"calibration": 0}, "calibration is 0"),
        ({"short": 0}, "short is 0"),
        ({"short": 31}, "long is 30"),
        ({"short": 1, "long": 1}, "long is 1"),
        ({"stretch": -1.0}, "stretch is -1.0"),
        ({"steepness": float("inf")}, "steepness is inf"),
        ({"decay": 0.0}, "decay is 0.0"),
    ],
)
def test_bad_parameters_are_told(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Dsde(**change)
