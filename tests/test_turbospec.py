"""TurboSpec: its goodput by hand, its climb, when it decides and when it probes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile.pricing import BoundPricing
from engine.protocol import Limits, uniform_plan
from engine.replay.recording import Manifest
from policies import registry
from policies.step_prices import step_prices
from policies.turbospec import TurboSpec, climb, expected_tokens
from tests import tiny_recording
from tests.priced_views import priced_view
from tests.test_adaptivespec import outcome_of

LIMITS = Limits(slots=4, max_depth=3)


def test_goodput_by_hand() -> None:
    # Two requests, α = 0.5. Verification takes 1 s a token. k = 0: 10 + 2 = 12 s for 2 tokens, so
    # 1/6 a second, counted 1.1 times. k = 1: one draft step with 2 rows, 1.2 s, and 4 s: 15.2 s for
    # 2 · 1.5 tokens. k = 2: 2 steps, 4 rows: 2.4 s, and 6 s: 18.4 s for 2 · 1.75. k = 3: 3.6 and 8.
    view = priced_view(2, np.arange(20.0), LIMITS)
    scores = TurboSpec(rate=0.5).goodput(view)
    assert scores == pytest.approx([1.1 * 2 / 12, 3 / 15.2, 3.5 / 18.4, 3.75 / 21.6])
    # 0.1833, 0.1974, 0.1902: k = 1 is the best, and the climb ends there.
    assert climb(scores) == 1
    behind = priced_view(2, np.arange(20.0), LIMITS, catch_up_s=4.0)
    assert TurboSpec(rate=0.5).goodput(behind)[1] == pytest.approx(3 / 19.2)
    assert climb(TurboSpec(rate=0.5).goodput(behind)) == 0


def test_expected_tokens() -> None:
    # (1 − 0.7³) / (1 − 0.7) = 2.19, and k + 1 where everything is accepted.
    assert expected_tokens(0.7, 2) == pytest.approx([1, 1.7, 2.19])
    assert expected_tokens(1.0, 2) == [1, 2, 3]
    assert expected_tokens(0.0, 2) == [1, 1, 1]


def test_the_climb_ends_at_the_first_drop() -> None:
    assert climb([1.0, 2.0, 1.9, 5.0]) == 1
    assert climb([1.0, 1.0, 5.0]) == 0  # no rise is a drop, as in the source
    assert climb([1.0, 2.0, 3.0]) == 2
    assert climb([1.0]) == 0


def test_the_climb_finds_the_best_where_there_is_one_peak() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        view = priced_view(int(rng.integers(1, 5)), rng.random() * np.arange(40.0), LIMITS)
        scores = TurboSpec(rate=float(rng.random())).goodput(view)
        rises = np.sign(np.diff(scores))
        if (np.diff(rises) <= 0).all():  # never falls and rises again
            assert climb(scores) == int(np.argmax(scores))


def test_what_the_cache_cannot_hold_is_worth_nothing() -> None:
    # Two requests of 100: 1.1 · 2 · (100 + k + 1) is 222.2, 224.4, 226.6, …
    view = priced_view(2, np.zeros(20), LIMITS)
    assert climb(TurboSpec(rate=0.9).goodput(view)) == 3
    assert climb(TurboSpec(rate=0.9).goodput(view._replace(kv_total_tokens=225))) == 1
    assert climb(TurboSpec(rate=0.9).goodput(view._replace(kv_total_tokens=200))) == 0


def test_the_rate_by_hand() -> None:
    # Three requests were offered 3 drafts; 3, 1 and 0 were accepted, the one that ended aside. So
    # 3 + 2 + 1 = 6 were judged and 4 accepted: 0.85 · 0.7 + 0.15 · 4 / 6 = 0.695.
    controller = TurboSpec()
    finished = np.array([False, False, False, True])
    outcome = outcome_of(np.full(4, 3), np.array([3, 1, 0, 1]), LIMITS, finished=finished)
    controller.observe(outcome)
    assert controller.rate == pytest.approx(0.695)
    controller.observe(outcome_of(np.zeros(4, int), np.zeros(4, int), LIMITS))
    assert controller.rate == pytest.approx(0.695)  # no drafts tell nothing


def test_it_decides_at_every_twentieth_step() -> None:
    controller = TurboSpec(rate=0.9)
    view = priced_view(2, np.zeros(20), LIMITS)
    lengths = [int(controller.plan(view).depth[0]) for _ in range(39)]
    assert lengths == [0] * 19 + [3] * 20
    controller.rate = 0.0
    assert controller.plan(view).depth.tolist() == [0] * 4
    assert controller.length == 0


def test_it_probes_with_one_token() -> None:
    controller = TurboSpec(rate=0.0, probe=5)
    view = priced_view(2, np.zeros(20), LIMITS)
    lengths = [int(controller.plan(view).depth[0]) for _ in range(18)]
    assert lengths == ([0] * 5 + [1]) * 3
    never = TurboSpec(rate=0.0, probe=0)
    assert not any(never.plan(view).depth[0] for _ in range(400))


@pytest.mark.parametrize("width", [1, 3])
def test_prices_are_the_profiles(width: int) -> None:
    """The parts add up to what a plan costs, the growth of the engine's own work aside."""
    named = SimpleNamespace(model="m", dtype="float32", drafter="d", network="n")
    profile = tiny_recording.known_profile(cast(Manifest, named))
    decoding = np.array([True, True, False, True])
    pricing = BoundPricing(profile, decoding, np.array([50, 60, 0, 9]), np.array([9, 2, 0, 1]))
    view = priced_view(4, np.zeros(9), LIMITS)._replace(active=decoding, pricing=pricing)
    prices = step_prices(view, pricing, width)
    for depth, nodes in ((0, 0), (1, 1), (2, 1), (3, 3), (5, 5)):
        plan = uniform_plan(LIMITS, depth, width, nodes)
        before_s = prices.before_verification_s(np.array([depth]))
        parts = float(before_s[0]) + float(pricing.verify_s(3 * (1 + nodes)))
        own_work_s = 3 * 5 * 2.0**-16  # at most, by the profile
        assert parts == pytest.approx(pricing.step_s(plan), abs=own_work_s)
    behind = replace(pricing, undrafted_tokens=np.array([40, 2, 0, 1]))
    late = step_prices(view, behind, width)
    assert late.first_s - prices.first_s == pytest.approx(31 * 2.0**-13)  # it catches up
    assert late.next_s == prices.next_s and late.rest_s == prices.rest_s


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("turbospec(longest=0)", "longest is 0"),
        ("turbospec(interval=0)", "interval is 0"),
        ("turbospec(probe=-1)", "probe is -1"),
        ("turbospec(weight=2)", "weight is 2"),
        ("turbospec(rate=-0.1)", "rate is -0.1"),
        ("turbospec(favour=0)", "favour is 0"),
    ],
)
def test_bad_parameters_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        registry.make(spec)
    assert says in str(caught.value)


def test_without_a_profile_it_says_so() -> None:
    view = priced_view(1, np.zeros(9), LIMITS)._replace(pricing=None)
    with pytest.raises(UserError, match="needs a hardware profile"):
        TurboSpec(interval=1).plan(view)
