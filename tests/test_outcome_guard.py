"""When the SLO ledger counts as worse and as recovered, and what a shield makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from policies.outcome_guard import OutcomeGuard, wilson_upper
from policies.shielded import Shielded
from tests.test_shielded import FALLBACK, GIVEN, VIEW, Given, depth, guarded, outcome_of


def judged(controller: Shielded, decisions: int, valid: Callable[[int], int]) -> list[int]:
    """Who acted; tokens in time of ten by who did."""
    depths = []
    for _ in range(decisions):
        depths.append(depth(controller))
        controller.observe(outcome_of(valid=valid(depths[-1])))
    return depths


def test_it_gives_way_when_the_ledger_worsens_and_returns_when_that_has_recovered() -> None:
    controller = guarded(Given(), window=8, dwell=8, margin=0.1)
    assert set(judged(controller, 40, lambda d: 9)) == {GIVEN}
    assert controller.guard.expected == pytest.approx(0.9)
    worse = judged(controller, 8, lambda d: 6 if d == GIVEN else 7)
    assert worse[0] == GIVEN and worse[-1] == FALLBACK and controller.fallbacks["outcome"] == 1
    # Better than the controller was, but not yet well: it stays.
    assert set(judged(controller, 20, lambda d: 7)) == {FALLBACK}
    recovered = judged(controller, 20, lambda d: 9)
    assert recovered[0] == FALLBACK and recovered[-1] == GIVEN
    assert controller.fallbacks_so_far == 1


def test_a_fallback_that_does_no_better_puts_it_down_to_the_load() -> None:
    controller = guarded(Given(), window=8, dwell=8, margin=0.1)
    judged(controller, 40, lambda d: 9)
    judged(controller, 60, lambda d: 5)
    assert controller.fallbacks["outcome"] == 1 and controller.level == 0
    assert controller.guard.expected == pytest.approx(0.5, abs=0.01)


def test_within_the_margin_nobody_gives_way() -> None:
    controller = guarded(Given(), window=8, margin=0.15)
    judged(controller, 40, lambda d: 9)
    assert set(judged(controller, 60, lambda d: 8)) == {GIVEN}


def test_an_expectation_may_be_given() -> None:
    controller = guarded(Given(), window=8, expected=0.95)
    assert set(judged(controller, 8, lambda d: 6)) == {GIVEN}
    assert depth(controller) == FALLBACK and controller.guard.expected == 0.95


def test_requests_without_an_objective_count_for_nothing() -> None:
    free = VIEW._replace(tpot_objective_s=np.full(VIEW.limits.slots, np.inf))
    controller = guarded(Given(), window=2, expected=0.95)
    for _ in range(10):
        assert depth(controller, free) == GIVEN
        controller.observe(outcome_of(valid=0))


def test_few_observations_prove_nothing() -> None:
    guard = OutcomeGuard(window=2, margin=0.1, expected=0.9)
    guard.note(1, 10, 6)
    assert not guard.is_worse()  # not full
    guard.note(1, 10, 6)
    assert not guard.is_worse()  # the interval reaches 0.8
    for _ in range(2):
        guard.note(200, 2000, 1200)
    assert guard.is_worse()
    guard.forget()
    assert math.isnan(guard.share) and guard.has_recovered() and not guard.is_worse()


def test_the_wilson_interval_by_hand() -> None:
    """p = 0.5, n = 100: (0.5 + 0.019208 + 1.96 √(0.0025 + 0.000096)) / 1.038416 = 0.59617."""
    assert wilson_upper(0.5, 100) == pytest.approx(0.59617, abs=1e-5)
    assert wilson_upper(1.0, 50) == pytest.approx(1.0) and wilson_upper(0.0, 0) == 1.0
