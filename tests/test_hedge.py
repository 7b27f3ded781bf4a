"""Hedge: its weights, prices and probes, and how it follows shifts of acceptance.

What it reads off a verified tree is tested in test_hedge_subtrees.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UserError
from engine.kernels.hedge_outcomes import reweigh
from engine.kernels.hedge_plans import drawn_shapes, shape_seconds
from engine.protocol import NODE_TIERS, Candidates, Ints, Limits, PriceTable
from policies import registry
from policies.hedge import SHAPES, Hedge, probes_of
from tests.controller_episodes import serve
from tests.test_adaptivespec import outcome_of
from tests.test_features import make_view
from tests.twins import hedge as twin

# -- weights, prices, plans ------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_weights_equal_the_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots, experts = 3, 4
    weights = rng.dirichlet(np.ones(experts), 2)
    told, slo_class = rng.random(slots) < 0.8, rng.integers(0, 2, slots)
    known, tokens = rng.integers(1, 16, slots), rng.uniform(1, 5, (slots, experts))
    cost, expected = rng.uniform(0, 3, experts), [row.tolist() for row in weights]
    for s in np.flatnonzero(told).tolist():
        gains = {e: tokens[s, e] - cost[e] for e in range(experts) if known[s] >> e & 1}
        c = int(slo_class[s])
        expected[c] = twin.reweighed(expected[c], gains, 0.7, 0.1)
    reweigh(told, slo_class, known, tokens, cost, 0.7, 0.1, weights)
    np.testing.assert_allclose(weights, expected)
    assert weights.sum(1) == pytest.approx(1.0)


def test_seconds_by_hand() -> None:
    seconds = np.empty(3)
    shape_seconds(
        np.array([1, 1, 0], bool),
        np.array([1, 17, 9]),
        np.array([[0, 0, 0], [1, 0, 1], [3, 1, 3]]),
        np.array([10.0, 11, 12, 13, 14]),
        np.array([2.0, 0.5]),
        np.array([[0.0, 1, 2, 3], [0, 2, 4, 6]]),
        8.0,
        seconds,
    )
    # Two requests, one of them 16 tokens behind: 2 + 16 / 8 rows at 0.5 s, 2 s at once. Six nodes
    # are two more than priced, at the last slope of 1 s.
    assert seconds.tolist() == [10.0, 12 + 2 + 2, 16 + 2 + 2 + 2 * 4]


def test_who_draws_what() -> None:
    shapes = np.array([[0, 1, 0], [2, 1, 2], [3, 4, 8]])
    weights = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    active, slo_class = np.array([1, 1, 0, 1], bool), np.array([0, 1, 0, 0])

    def drawn(at: list[float], scout: int, apart: int) -> tuple[list[int], ...]:
        out = [np.full(4, -9) for _ in range(4)]
        union = np.array([1, 4, 40])
        drawn_shapes(
            active, slo_class, weights, np.array(at), shapes, scout, apart, 0b11, union, *out
        )
        return tuple(a.tolist() for a in out)

    assert drawn([-1, -1], -1, 1)[:1] == ([2, 0, 0, 2],)  # the leaders
    assert drawn([0.1, 0.65], -1, 1)[0] == [0, 2, 0, 0]
    assert drawn([0.71, 0.99], -1, 1)[0] == [3, 3, 0, 3]
    # Every other of those who run probes, and what it draws besides.
    depth, width, nodes, wanted = drawn([-1, -1], 0, 2)
    assert (depth, width, nodes) == ([2, 0, 0, 2], [4, 1, 1, 4], [40, 0, 0, 40])
    assert wanted == [0b11, 0b1, 0, 0b11]
    assert drawn([-1, -1], 1, 2)[0] == [2, 1, 0, 2]


def test_probes_widen() -> None:
    probes = probes_of(np.array(SHAPES), 64)
    assert [union.tolist() for _, union in probes] == [
        [1, 4, 64],
        [2, 4, 64],
        [4, 4, 64],
        [6, 4, 64],
    ]
    assert probes[0][0] == sum(1 << e for e, shape in enumerate(SHAPES) if shape[0] <= 1)
    assert probes[-1][0] == (1 << len(SHAPES)) - 1


# -- the controller --------------------------------------------------------------------------------

CHAINS = ((0, 1, 0), (1, 1, 1), (2, 1, 2), (4, 1, 4))


class World:
    """Six requests whose drafts are chains, of which so many tokens are accepted each time."""

    def __init__(self, **params: Any) -> None:
        self.limits = Limits(slots=6, max_depth=4, max_width=1, max_nodes=8)
        self.controller = Hedge(CHAINS, **params)
        self.controller.reset(self.limits)
        self.view = make_view(
            np.random.default_rng(0), limits=self.limits, active=np.ones(6, bool),
            slo_class=np.array([0, 0, 0, 1, 1, 1]), remaining_tokens=np.full(6, 99),
            pricing=Prices(),
        )  # fmt: skip

    def turn(self, accepts: int) -> int:
        """One iteration in which the first `accepts` drafts are the target's; the shallowest chain,
        which is that of those who do not probe."""
        controller, limits = self.controller, self.limits
        plan = controller.plan(self.view)
        shape, step = (6, limits.max_candidates), np.arange(limits.max_candidates)
        drafted = Candidates(
            plan.depth, np.broadcast_to(step - 1, shape), np.broadcast_to(step + 1, shape),
            np.zeros(shape, np.int64), np.broadcast_to(0.5 ** (step + 1.0), shape),
        )  # fmt: skip
        kept = controller.select(self.view, plan, drafted)
        taken = np.minimum(kept.sum(1), accepts)
        within = np.ones((6, limits.max_depth + 1, len(NODE_TIERS)), np.int64)
        for d, t in np.ndindex(*within.shape[1:]):
            within[:, d, t] += np.minimum(np.minimum(taken, d), NODE_TIERS[t])
        outcome = outcome_of(kept.sum(1), taken, limits)._replace(
            slo_class=self.view.slo_class, accepted_within=within,
            verify_s=1.0 + 0.15 * plan.depth.max() + 0.02 * kept.sum(),
        )  # fmt: skip
        controller.observe(outcome)
        return int(plan.depth.min())


class Prices:
    """A second a step, 0.15 s a draft step, 0.02 s a node; the rest is never asked."""

    def step_s(self, plan: Any) -> float:
        raise AssertionError

    verify_s = node_budget = step_s

    def table(self, nodes: int, widths: Ints) -> Any:
        each, free = 0.02 * np.arange(nodes + 1, dtype=np.float64), np.zeros(7)
        further_s = np.full((len(widths), 7), 0.15)
        undrafted = np.ones(6, np.int64)
        return PriceTable(
            1.0 + each, 0.0 * each, np.array([0.15, 0.0]), further_s, 0.0, undrafted, free + 1, free
        )


def test_it_follows_acceptance_up_and_down() -> None:
    """Deep within 300 iterations of everything accepted, at most one draft within 10 of nothing."""
    world = World()
    assert world.turn(4) == 0
    up = [world.turn(4) for _ in range(300)]
    assert set(up[-20:]) == {4}
    down = [world.turn(0) for _ in range(60)]
    assert max(down[10:]) <= 1 and down[0] == 4
    again = [world.turn(4) for _ in range(400)]
    assert set(again[-20:]) == {4}  # probes tell that it pays again


def test_without_learning_it_would_not() -> None:
    """The control of the test above."""
    world = World(rate=1e-9)
    assert {world.turn(4) for _ in range(300)} == {0}


def test_where_two_pay_it_stays_at_two() -> None:
    world = World()
    assert set([world.turn(2) for _ in range(300)][-50:]) == {2}


def test_classes_have_weights_of_their_own() -> None:
    world = World()
    for _ in range(20):
        world.turn(3)
    assert world.controller.weights is not None
    assert (world.controller.weights[2] == world.controller.weights[2].max()).sum() == 1
    untouched = World().controller
    untouched.plan(world.view)
    assert untouched.weights is not None
    np.testing.assert_array_equal(world.controller.weights[2], untouched.weights[2])


def test_what_it_did_not_choose_tells_nothing() -> None:
    world = World(probe=1)
    controller = world.controller
    world.turn(1)
    before = np.array(controller.weights)
    controller.plan(world.view)  # and nobody asks it to select
    controller.observe(outcome_of([1] * 6, [1] * 6, world.limits)._replace(verify_s=1.0))
    np.testing.assert_array_equal(controller.weights, before)


@pytest.mark.parametrize("spec", ["hedge", "hedge(sample=True)", "hedge(probe=1)"])
def test_episodes(spec: str) -> None:
    episode = serve("replay", registry.make(spec))
    assert episode.texts == serve("replay", registry.make("autoregressive")).texts
    assert episode.counters["clipped"] == 0 and episode.counters["drafted"] > 0
    assert serve("replay", registry.make(spec)).course == episode.course


def test_the_seed_decides_what_is_sampled() -> None:
    courses = [serve("replay", Hedge(sample=True, seed=seed)).course for seed in (1, 1, 2)]
    assert courses[0] == courses[1] != courses[2]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"shapes": ((0, 1, 0),)}, "shapes are"),
        ({"shapes": ((1, 1, 1), (0, 1, 0))}, "shapes are"),
        ({"shapes": ((0, 1, 0), (1, 0, 1))}, "shapes are"),
        ({"shapes": ((0, 1, 0), (1, 1, 1), (1, 1, 1))}, "shapes are"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"share": 1.0}, "share is 1.0"),
        ({"probe": 0}, "probe is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_parameters(params: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Hedge(**params)


def test_it_needs_a_profile() -> None:
    view = make_view(np.random.default_rng(0))
    with pytest.raises(UserError, match="needs a hardware profile"):
        Hedge().plan(view)
