"""AdaServe: its rule by hand, and whole episodes; its selection is in test_kernels_slo_select."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from engine.errors import UserError
from engine.protocol import Floats, Limits, Plan, View, uniform_plan
from engine.request import Request
from engine.tiny import tiny_server
from policies import registry
from policies.adaserve import AdaServe
from policies.adaserve_artifact import AdaServeArtifact
from tests import tiny_recording
from tests.test_features import make_view
from tests.test_kernels_slo_select import flat
from tests.twins.slo_select import Tree

LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=12)


# -- the rule ------------------------------------------------------------------------------------


class Prices:
    """A step of `seconds`; room for `nodes`."""

    def __init__(self, seconds: float, nodes: int) -> None:
        self.seconds, self.nodes = seconds, nodes
        self.multiples: list[float] = []

    def step_s(self, plan: Plan) -> float:
        """Always the same."""
        return self.seconds

    def verify_s(self, tokens: ArrayLike) -> Floats:
        """Not asked."""
        raise AssertionError

    def node_budget(self, multiple: float) -> int:
        """Always the same."""
        self.multiples.append(multiple)
        return self.nodes


def view_of(prices: Prices | None, requests: int = 3, **changes: Any) -> View:
    """Requests in the first slots, each on its objective of 50 ms a token."""
    limits = changes.pop("limits", LIMITS)
    values: dict[str, Any] = {
        "active": np.arange(limits.slots) < requests,
        "slo_class": np.zeros(limits.slots, np.int64),
        "tpot_objective_s": np.full(limits.slots, 0.05),
        "slack_tokens": np.zeros(limits.slots),
        "pricing": prices,
    }
    return make_view(np.random.default_rng(0), limits=limits, **{**values, **changes})


def test_a_need_by_hand() -> None:
    # τ = 50 ms, l = 0.9 s, o = 16 tokens, t = 0.12 s: the request should have 18 tokens by now,
    # is 2 behind, and 2.4 more fall due while the iteration runs: (0.9 + 0.12) / 0.05 - 16 = 4.4.
    # The next one is 5 tokens ahead: -2.6. Without an objective, and in the idle slot: 0.
    limits = Limits(slots=4)
    view = view_of(
        Prices(0.12, 8),
        limits=limits,
        tpot_objective_s=np.array([0.05, 0.05, np.inf, 0.05]),
        slack_tokens=np.array([16 - 0.9 / 0.05, 5.0, 7.0, -9.0]),
    )
    plan = uniform_plan(limits, 2, 1, 2)
    assert AdaServe().needs(view, plan).tolist() == pytest.approx([4.4, -2.6, 0.0, 0.0])
    # The public code: 0.9 / 0.05 + 1.05 · 0.12 / 0.05 - 16 = 4.52, and at least 1.
    assert AdaServeArtifact().needs(view, plan).tolist() == pytest.approx([4.52, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("spec", "requests", "budget", "beam"),
    [
        # ⌊512 / 60⌋ - 1 = 7; ⌊96 / 60⌋ = 1.
        ("adaserve(verify_tokens=512, draft_tokens=96)", 60, 9, (7, 1)),
        ("adaserve(verify_tokens=512, draft_tokens=96)", 3, 9, (8, 3)),  # 169 and 32, capped
        ("adaserve(verify_tokens=512, draft_tokens=96)", 200, 9, (4, 1)),  # 1 and 0, floored
        ("adaserve(verify_tokens=512, draft_tokens=96, c1=20, c2=1)", 60, 9, (5, 2)),  # ⌊6.4⌋ - 1
        # B1 is 20 nodes and 4 roots, B2 a quarter: ⌊24 / 4⌋ - 1 = 5; ⌊6 / 4⌋ = 1.
        ("adaserve", 4, 20, (5, 1)),
        ("adaserve(depth_min=1, depth_max=2)", 4, 4, (1, 1)),
        ("adaserve-artifact(verify_tokens=256, draft_tokens=80, depth_min=3)", 40, 9, (5, 2)),
    ],
)
def test_depth_and_width_follow_the_load(
    spec: str, requests: int, budget: int, beam: tuple[int, int]
) -> None:
    controller = registry.make(spec)
    assert isinstance(controller, AdaServe)
    assert controller.beam(requests, budget, Limits()) == beam
    small = Limits(max_depth=3, max_width=1)
    assert controller.beam(requests, budget, small) == (min(beam[0], 3), 1)


def test_the_plan_has_the_profiles_budget() -> None:
    prices = Prices(0.1, 20)
    plan = AdaServe(budget=1.5).plan(view_of(prices))
    assert prices.multiples == [1.5] and plan.node_budget == 20
    # B1 = 23: ⌊23 / 3⌋ - 1 = 6, the engine's 4; B2 = 5: ⌊5 / 3⌋ = 1. Four survivors a request.
    assert [set(a.tolist()) for a in plan[:4]] == [{4}, {1}, {4}, {1.0}]
    wide = AdaServe(draft_tokens=9, candidates="scored").plan(view_of(prices))
    assert [set(a.tolist()) for a in wide[:3]] == [{4}, {3}, {12}]  # 3 + 3 · 9, at most 12 kept
    assert AdaServe(budget_tokens=7).plan(view_of(prices)).node_budget == 7 - 3
    none = AdaServe().plan(view_of(Prices(0.1, 0)))
    assert none.node_budget == 0 and not none.depth.any()  # roots alone are too much
    assert AdaServe(budget_tokens=2).plan(view_of(prices)).node_budget == 0


def chosen(controller: AdaServe, view: View, budget: int, depth: int, trees: Sequence[Tree]) -> Any:
    """Kept nodes [S, N] under a plan of that depth, with width 2."""
    plan = uniform_plan(view.limits, depth, 2, 2 * depth)._replace(node_budget=budget)
    return controller.select(view, plan, flat(trees))


def test_what_cannot_be_met_is_a_state_that_is_counted() -> None:
    # Each request is due 2 tokens (0.1 s / 50 ms), less its slack.
    view = view_of(Prices(0.1, 9), slack_tokens=np.array([0.5, 0.6, 3.0]))
    trees = [[(-1, 1, 0.5)], [(-1, 1, 0.4)], [(-1, 1, 0.9)]]
    controller = AdaServe()
    controller.reset(view.limits)
    assert chosen(controller, view, 2, 2, trees)[:, 0].tolist() == [True, True, False]
    assert (controller.decisions, controller.infeasible, controller.unmet) == (1, 0, 0)
    # One node: to the first, whose need of 1.5 is the larger; the other stays short of 1.4.
    assert chosen(controller, view, 1, 2, trees)[:, 0].tolist() == [True, False, False]
    assert (controller.decisions, controller.infeasible, controller.unmet) == (2, 1, 1)
    chosen(controller, view, 0, 0, trees)
    assert (controller.decisions, controller.infeasible, controller.unmet) == (3, 2, 3)
    # 5 tokens late, no tree reaches 7; all that is served is one token for each layer, and one.
    late = view._replace(slack_tokens=np.array([-5.0, 3.0, 3.0]))
    chosen(controller, late, 9, 2, trees)
    assert (controller.infeasible, controller.unmet) == (3, 4)
    controller.reset(view.limits)
    assert (controller.decisions, controller.infeasible, controller.unmet) == (0, 0, 0)


def test_needs_are_capped_at_what_a_path_can_give() -> None:
    # The first is 50 tokens late. At depth 1 its goal is 2, met by the sure node, and the second
    # node goes to the other request; uncapped it would take both of its own.
    view = view_of(Prices(0.05, 9), 2, slack_tokens=np.array([-50.0, 0.0, 0.0]))
    trees = [[(-1, 1, 1.0), (-1, 1, 0.25)], [(-1, 1, 0.5), (-1, 1, 0.125)], []]
    kept = chosen(AdaServe(), view, 2, 1, trees)
    assert np.argwhere(kept).tolist() == [[0, 0], [1, 0]]


def test_only_what_the_beam_keeps_is_a_candidate_unless_told() -> None:
    # Width 2: of the second layer the third likeliest was scored, and is not expanded.
    tree = [(-1, 1, 0.9), (-1, 1, 0.05), (0, 2, 0.4), (0, 2, 0.3), (1, 2, 0.04), (1, 2, 0.01)]
    view = view_of(Prices(0.05, 9), 1)
    paper, scored = AdaServe(), AdaServe(candidates="scored")
    plan = uniform_plan(view.limits, 2, 2, 6)._replace(node_budget=6)
    given_ = flat([tree, [], []])
    assert np.flatnonzero(paper.select(view, plan, given_)[0]).tolist() == [0, 1, 2, 3]
    assert np.flatnonzero(scored.select(view, plan, given_)[0]).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_public_code_serves_small_needs_first_and_absolute_objectives_never() -> None:
    # coding (0) is due 2 tokens, less slack: needs 1.05 · 2 - 0.5 = 1.6 and 2.1; chat (1) 5.1.
    view = view_of(
        Prices(0.1, 9),
        slo_class=np.array([0, 0, 1]),
        slack_tokens=np.array([0.0, 0.5, -3.0]),
    )
    trees = [[(-1, 1, 0.5)], [(-1, 1, 0.5)], [(-1, 1, 0.9)]]
    code = AdaServeArtifact()
    assert chosen(code, view, 1, 2, trees)[:, 0].tolist() == [False, True, False]
    assert chosen(code, view, 2, 2, trees)[:, 0].tolist() == [True, True, False]
    assert chosen(AdaServe(), view, 1, 2, trees)[:, 0].tolist() == [False, False, True]
    # The SLO phase takes ⌊1.2 · (4 + 3) / 3⌋ = 2 nodes a request, so not the chain's third.
    late = view._replace(slack_tokens=np.array([-1.0, -0.5, -3.0]))
    deep = [[(-1, 1, 0.2), (0, 2, 0.1)], [(-1, 1, 0.5), (0, 2, 0.4), (1, 3, 0.3)], []]
    kept = chosen(AdaServeArtifact(), late, 4, 3, deep)
    assert np.argwhere(kept).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    all_relative = AdaServeArtifact(relative=("coding", "chat"))
    assert chosen(all_relative, view, 3, 2, trees).sum() == 3


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("adaserve(budget=0)", "budget is 0"),
        ("adaserve(c1=-1)", "c1 is -1"),
        ("adaserve(c2=0.5)", "c2 is 0.5"),
        ("adaserve(verify_tokens=0)", "verify_tokens is 0"),
        ("adaserve(depth_min=5, depth_max=4)", "depth_min is 5 and depth_max 4"),
        ("adaserve(candidates='all')", "candidates is 'all'; expected survivors or scored"),
        ("adaserve-artifact(correction=0)", "correction is 0"),
        ("adaserve-artifact(relative='coding')", "relative is 'coding'"),
        ("adaserve-artifact(c1=2)", "parameters do not fit"),
    ],
)
def test_bad_parameters_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        registry.make(spec)
    assert says in str(caught.value)


def test_the_name_can_be_typed_again() -> None:
    for spec in (
        "adaserve",
        "adaserve(budget=1.5, c2=-1, candidates='scored')",
        "adaserve-artifact",
        "adaserve-artifact(budget_tokens=64, relative=('a', 'b'))",
    ):
        controller = registry.make(spec)
        assert controller.name == spec and controller.lossless and controller.needs_profile
    with pytest.raises(UserError, match="adaserve needs a hardware profile"):
        AdaServe().plan(view_of(None))


# -- episodes ------------------------------------------------------------------------------------

SPECS = (
    "adaserve(budget=3.0)",
    "adaserve(budget_tokens=14, draft_tokens=12, candidates='scored')",
    "adaserve-artifact(budget=3.0, depth_min=2)",
)


@pytest.fixture(scope="module")
def texts() -> dict[str, list[list[int]]]:
    """What each writes on the live engine, and ordinary decoding."""
    limits = Limits(slots=4)
    server = tiny_server(limits=limits)
    profile = tiny_recording.known_profile(tiny_recording.recorded()[0])
    server.profile = dataclasses.replace(profile, identity=server.identity)
    found = {}
    for spec in ("autoregressive", *SPECS):
        requests = [Request(i, i % 3, [i + 1, i + 2, 9], 14, 0.0) for i in range(5)]
        engine = server.engine(requests)
        engine.serve(registry.make(spec))
        found[spec] = [request.output for request in requests]
        assert (engine.counters["drafted"] > 0) == (spec != "autoregressive")
        assert engine.counters["unpriced"] == engine.counters["clipped"] == 0
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_the_text_is_ordinary_decodings(spec: str, texts: dict[str, list[list[int]]]) -> None:
    assert texts[spec] == texts["autoregressive"]
    assert all(len(text) == 14 for text in texts[spec])


@pytest.mark.parametrize("spec", SPECS)
def test_on_replay_no_selection_is_over_budget(spec: str) -> None:
    server = tiny_recording.replay_server()
    engine = server.engine(tiny_recording.asked(8, gap_s=0.01))
    controller = registry.make(spec)
    assert isinstance(controller, AdaServe)
    controller.reset(engine.limits)
    iterations = kept = 0
    while (view := engine.next_decision()) is not None:
        outcome = engine.run_iteration(view, controller)
        roots, tokens = int(outcome.ran.sum()), int(outcome.verified.sum())
        assert view.pricing is not None
        if controller.budget_tokens is None:
            one_s = view.pricing.profile.verify_s(1, view.context_tokens.sum() / roots, 1)  # type: ignore[attr-defined]
            assert tokens == roots or view.pricing.verify_s(tokens) <= controller.budget * one_s
        else:
            assert tokens <= max(controller.budget_tokens, roots)
        iterations += 1
        kept += tokens - roots
        assert outcome.shrunk == outcome.clipped == 0
    assert iterations == controller.decisions and kept > iterations
    assert controller.infeasible <= controller.unmet
    assert 0 < controller.infeasible < iterations
