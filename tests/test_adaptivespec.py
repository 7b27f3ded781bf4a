"""AdaptiveSpec's signal and trees, by hand. `outcome_of` makes outcomes for other tests too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from engine.errors import UserError
from engine.kernels.tree_sizes import feed_shares, tree_sizes
from engine.protocol import Limits, Outcome, Plan, View
from policies.adaptivespec import (
    AdaptiveSpec,
    AdaptiveSpecMargin,
    AdaptiveSpecTree,
    rolled,
)
from tests.test_features import make_view
from tests.twins import tree_sizes as twin

LIMITS = Limits(slots=3)


def outcome_of(drafted: ArrayLike, accepted: ArrayLike, limits: Limits, **more: Any) -> Outcome:
    """An iteration in which so many positions [S] were offered, and so many of them accepted."""
    slots, position = limits.slots, np.arange(limits.max_depth)
    whole, bools = np.zeros(slots, np.int64), np.zeros(slots, np.bool_)
    values: dict[str, Any] = dict.fromkeys(Outcome._fields, 0.0)
    values |= {name: whole for name in ("slo_class", "wasted", "let_through", "valid_tokens")}
    values |= {
        "ran": ~bools,
        "accepted_length": np.asarray(accepted) + 1,
        "drafted": np.asarray(drafted),
        "verified": np.asarray(drafted) + 1,
        "proposed": position < np.asarray(drafted)[:, None],
        "accepted": position < np.asarray(accepted)[:, None],
        "finished": bools,
        "divergence": None,
        "clipped": 0,
        "shrunk": 0,
    }
    return Outcome(**(values | more))


def view_of(confidence: ArrayLike, ids: ArrayLike = (0, 1, 2), **changes: Any) -> View:
    """Three requests that decode, and how sure the drafter was."""
    view = make_view(np.random.default_rng(0), limits=LIMITS)
    return view._replace(
        active=np.ones(3, np.bool_),
        request=np.array(ids),
        draft_confidence=np.array(confidence, float),
        since_proposed=np.zeros((3, LIMITS.max_depth), np.int64),
        **changes,
    )


def trees(plan: Plan) -> list[tuple[int, int, int]]:
    """Depth, width and nodes by slot."""
    return list(zip(plan.depth.tolist(), plan.width.tolist(), plan.nodes.tolist(), strict=True))


def warmed(controller: AdaptiveSpec, drafted: ArrayLike, accepted: ArrayLike) -> AdaptiveSpec:
    """Ten times the same outcome, with plans in between."""
    for _ in range(10):
        controller.plan(view_of([0.5, 0.5, 0.5]))
        controller.observe(outcome_of(drafted, accepted, LIMITS))
    return controller


def test_the_signal() -> None:
    # 0.5 · 0.8 + 0.5 · 0.4 = 0.6; with a weight of 0.25: 0.2 + 0.3 = 0.5.
    assert twin.fused(0.8, 0.4, 0.5) == pytest.approx(0.6)
    assert twin.fused(0.8, 0.4, 0.25) == pytest.approx(0.5)


def test_sizes_between_two_ends() -> None:
    # 1 + 0.6 · 7 = 5.2, so 5; 1 + 0.6 · 63 = 38.8, so 39; falling: 8 - 0.6 · 7 = 3.8, so 4.
    assert [twin.between(s, (1, 8)) for s in (0.0, 0.6, 1.0)] == [1, 5, 8]
    assert [twin.between(s, (1, 64)) for s in (0.0, 0.6, 1.0)] == [1, 39, 64]
    assert [twin.between(s, (8, 1)) for s in (0.0, 0.6, 1.0)] == [8, 4, 1]


def test_sizes_are_the_twins() -> None:
    rng = np.random.default_rng(0)
    for weight in (0.0, 0.25, 0.5, 1.0):
        # Eighths, so that halves come up.
        sure, agreed = rng.integers(0, 9, (2, 60)) / 8
        sure[rng.random(60) < 0.2] = math.nan
        ends, most = rng.integers(0, 9, (2, 3)), rng.integers(1, 9, 3)
        since = rng.integers(0, 5, (60, 2))[:, 0]
        found = tree_sizes(sure, agreed, weight, ends, most, since, 3)
        asked = zip(sure.tolist(), agreed.tolist(), since.tolist(), strict=True)
        wanted = [twin.tree(c, a, weight, ends.tolist(), most.tolist(), n, 3) for c, a, n in asked]
        assert found.T.tolist() == wanted


def test_averages_begin_with_what_comes_first() -> None:
    # 0.5, then 0.8 · 0.5 + 0.2 · 1 = 0.6, then 0.8 · 0.6 + 0.2 · 0 = 0.48.
    average, course = math.nan, []
    for share in (0.5, 1.0, 0.0):
        average = rolled(average, share, 0.8)
        course.append(average)
    assert course == pytest.approx([0.5, 0.6, 0.48])


def test_shares_are_fed_as_by_the_twin() -> None:
    rng = np.random.default_rng(0)
    average = np.where(rng.random(40) < 0.3, math.nan, rng.random(40))
    drafted = rng.integers(0, 9, 40)
    proposed = np.arange(8) < drafted[:, None]
    accepted = np.arange(8) < rng.integers(0, drafted + 1)[:, None]
    here = rng.random(40) < 0.8
    shares = twin.shares(here.tolist(), proposed.tolist(), accepted.tolist())
    wanted = [
        rolled(value, shares[slot], 0.8) if slot in shares else value
        for slot, value in enumerate(average.tolist())
    ]
    total, count = feed_shares(here, proposed, accepted, 0.8, average)
    assert (total, count) == (pytest.approx(sum(shares.values())), len(shares))
    assert average.tolist() == pytest.approx(wanted, nan_ok=True)


def test_trees_of_a_batch_by_hand() -> None:
    # Ten iterations of 6 positions each, of which 6, 3 and 0 are accepted: a = 1, 1/2 and 0.
    # s = (0.8 + 1) / 2 = 0.9, (0.4 + 0.5) / 2 = 0.45, (0.2 + 0) / 2 = 0.1. Depth and width are
    # 1 + 7 s = 7.3, 4.15, 1.7; nodes 1 + 63 s = 57.7, 29.35, 7.3.
    controller = warmed(AdaptiveSpec(), [6, 6, 6], [6, 3, 0])
    plan = controller.plan(view_of([0.8, 0.4, 0.2]))
    assert trees(plan) == [(7, 7, 58), (4, 4, 29), (2, 2, 7)]
    assert plan.margin.tolist() == [0.6] * 3 and not controller.lossless
    assert plan.node_budget == 3 * 64


def test_a_request_follows_its_own_share_and_a_new_one_the_batchs() -> None:
    # The first two as above, and the third is new: the batch's average of (1 + 0.5 + 0) / 3 is 0.5.
    # It was not drafted for, so the others' mean confidence of 0.6 stands in: s = 0.55, depth 4.85.
    controller = warmed(AdaptiveSpecTree(), [6, 6, 6], [6, 3, 0])
    plan = controller.plan(view_of([0.8, 0.4, 0.0], ids=[0, 1, 9]))
    assert plan.depth.tolist() == [7, 4, 5]
    # One iteration later, in which it accepted 4 of 5, 0.8 · 0.5 + 0.2 · 0.8 = 0.56: with c = 0.9,
    # s = 0.73, depth 6.11. The second is in another slot and accepted nothing of 4: 0.4, s = 0.4.
    controller.observe(outcome_of([7, 4, 5], [7, 0, 4], LIMITS))
    plan = controller.plan(view_of([0.9, 0.8, 0.4], ids=[9, 0, 1]))
    assert plan.depth.tolist() == [6, 7, 4]
    # Nobody was drafted for yet: agreement stands in, 1 + 7 · 0.56 = 4.92.
    assert controller.plan(view_of([0, 0, 0], ids=[9, 0, 1])).depth[0] == 5


def test_everybody_has_the_static_tree_in_the_warm_up() -> None:
    controller = AdaptiveSpec(static=(5, 4, 16))
    for iteration in range(14):
        plan = controller.plan(view_of([0.9, 0.1, 0.5]))
        assert trees(plan) == [(5, 4, 16)] * 3 and plan.margin[0] == 0.6
        # Four iterations could not draft, which is no evidence.
        offered = [0, 0, 0] if iteration < 4 else [5, 5, 5]
        controller.observe(outcome_of(offered, [0, 0, 0], LIMITS))
    assert len(set(trees(controller.plan(view_of([0.9, 0.1, 0.5]))))) == 3
    controller.reset(LIMITS)
    assert trees(controller.plan(view_of([0.9, 0.1, 0.5]))) == [(5, 4, 16)] * 3


def test_depth_0_is_probed_after_eight_iterations_without_an_offer() -> None:
    # a = 0, s = 0.05 and 0.4: depths 0.4 and 3.2 of 8.
    controller = warmed(AdaptiveSpecTree(depth=(0, 8)), [6, 6, 6], [0, 0, 0])
    view = view_of([0.1, 0.1, 0.8])
    view.since_proposed[:] = [[7], [8], [8]]
    assert controller.plan(view).depth.tolist() == [0, 1, 3]
    assert trees(controller.plan(view))[1] == (1, 1, 1)
    # Nothing offered leaves the share as it was; one accepted token lifts it to 0.2.
    controller.observe(outcome_of([0, 1, 3], [0, 1, 0], LIMITS))
    assert controller.requests.rows.agreement.tolist() == pytest.approx([0.0, 0.2, 0.0])


ENDS = st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda e: (min(e), max(e)))
SHARE = st.floats(0, 1)


@given(ENDS, ENDS, ENDS, SHARE, SHARE, SHARE, SHARE, SHARE, st.integers(0, 9))
def test_trees_grow_with_confidence_and_with_agreement(
    depth: tuple[int, int],
    width: tuple[int, int],
    nodes: tuple[int, int],
    weight: float,
    confidence: float,
    surer: float,
    agreement: float,
    better: float,
    cut: int,
) -> None:
    limits = Limits(3, 1 + cut % 8, 1 + cut % 5, 1 + cut)
    controller = AdaptiveSpecTree(weight, 0.8, depth, width, nodes, warm_up=1)
    controller.plan(view_of([0.5] * 3))
    controller.observe(outcome_of([4, 4, 4], [2, 2, 2], LIMITS))
    low, high = sorted((confidence, surer))
    worse, better = sorted((agreement, better))
    controller.requests.rows.agreement[:] = worse, worse, better
    # 0 would say that it was never drafted for.
    view = view_of(np.maximum([low, high, high], 1e-9))._replace(limits=limits)
    sizes = np.array(trees(controller.plan(view)))
    assert (np.diff(sizes, axis=0) >= 0).all()
    assert (sizes <= [limits.max_depth, limits.max_width, limits.max_nodes]).all()


def test_the_three_modes_differ_in_one_axis_each() -> None:
    both, tree, margin = AdaptiveSpec(), AdaptiveSpecTree(), AdaptiveSpecMargin()
    for controller in (both, tree):
        warmed(controller, [6, 6, 6], [6, 3, 0])
    view = view_of([0.8, 0.4, 0.2])
    assert trees(both.plan(view)) == trees(tree.plan(view))
    assert tree.plan(view).margin.tolist() == [1.0] * 3 and tree.lossless
    assert margin.plan(view).margin.tolist() == both.plan(view).margin.tolist()
    assert trees(margin.plan(view)) == [(6, 8, 32)] * 3 and not margin.lossless
    assert AdaptiveSpec(margin=1.0).lossless and AdaptiveSpecMargin(margin=1.0).lossless


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"margin": 0.0}, "margin is 0.0"),
        ({"margin": float("nan")}, "margin is nan"),
        ({"weight": 1.5}, "weight is 1.5"),
        ({"memory": -0.1}, "memory is -0.1"),
        ({"depth": (-1, 4)}, "at least 0"),
        ({"width": (0, 4)}, "at least 1"),
        ({"nodes": (1.0, 4)}, "whole numbers"),
        ({"static": (6, 8)}, "expected 3"),
        ({"depth": 4}, "expected 2"),
        ({"warm_up": 0}, "warm_up is 0"),
        ({"probe": True}, "probe is True"),
    ],
)
def test_bad_parameters_are_told(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        AdaptiveSpec(**change)
    if "margin" in change or "static" in change:
        with pytest.raises(UserError, match=says):
            AdaptiveSpecMargin(**change)
