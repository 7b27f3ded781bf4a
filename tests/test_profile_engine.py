"""The engine predicts its steps, sizes node budgets, and says what it does without a profile."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import UserError
from engine.observability.metrics import ServingMetrics
from engine.observability.observing import serve_observed
from engine.profile import HardwareProfile
from engine.profile.cost_model import Curve, PassCost
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from tests import profile_steps

SMALL = Limits(slots=3, max_depth=4, max_width=4, max_nodes=16)


@pytest.fixture(scope="module")
def tiny() -> Iterator[LiveServer]:
    """The tiny networks, on one thread."""
    with profile_steps.one_thread():
        yield tiny_server(0, 16, limits=SMALL, capacity_tokens=128)


@pytest.fixture
def server(tiny: LiveServer) -> Iterator[LiveServer]:
    """The same, without what a test made of it."""
    fallback = tiny.fallback
    yield tiny
    tiny.profile, tiny.fallback = None, fallback


@pytest.fixture(scope="module")
def by_hand() -> HardwareProfile:
    """Costs that can be worked in the head: a millisecond a verified node, and so on."""
    made = profile_steps.profile_of(profile_steps.timed(profile_steps.episodes(quick=True)))
    return dataclasses.replace(
        made,
        verify=PassCost(Curve(0.010, (0.0,), (0.001,))),
        draft_first=PassCost(Curve(1.0, (0.0,), (0.1,))),
        draft_next=PassCost(Curve(100.0, (0.0,), (10.0,))),
        host=PassCost(),
        prefill=PassCost(Curve(1e4, (0.0,), (1e3,)), attended_s=1.0, request_s=5e6),
        most_tokens=64,
    )


class Trees(Controller):
    """The same tree for all, or another in a turn; keeps what it was shown."""

    def __init__(self, *trees: tuple[int, int, int], budget_steps: float | None = None) -> None:
        self.trees, self.budget_steps = trees, budget_steps
        self.views: list[View] = []

    def plan(self, view: View) -> Plan:
        """The tree whose turn it is."""
        tree = self.trees[len(self.views) % len(self.trees)]
        self.views.append(view)
        return uniform_plan(view.limits, *tree)._replace(budget_steps=self.budget_steps)


class Priced(Trees):
    """Cannot do without a profile."""

    name = "priced"
    needs_profile = True


def outcomes(
    server: LiveServer, controller: Controller, requests: list[Request], prefill_tokens: int = 64
) -> list[Outcome]:
    """Of every iteration until all is served."""
    settings = dataclasses.replace(server.settings, prefill_tokens=prefill_tokens)
    engine = server.engine(requests, settings=settings)
    found = []
    while (view := engine.next_decision()) is not None:
        found.append(engine.run_iteration(view, controller))
    return found


def requests(*prompt_lengths: int, tokens: int = 12) -> list[Request]:
    """Prompts of the given lengths that all arrive at once."""
    return [Request(i, 0, [1 + i] * n, tokens, 0.0) for i, n in enumerate(prompt_lengths)]


# -- predictions ---------------------------------------------------------------------------------


def test_without_a_profile_nothing_is_predicted(server: LiveServer) -> None:
    controller = Trees((2, 1, 2))
    found = outcomes(server, controller, requests(5))
    assert all(math.isnan(o.predicted_s) and math.isnan(o.prediction_error) for o in found)
    assert all(view.pricing is None for view in controller.views)


def test_a_step_is_predicted_with_its_prompt_and_what_was_not_drafted(
    server: LiveServer, by_hand: HardwareProfile
) -> None:
    server.profile = by_hand
    controller = Trees((0, 1, 0), (2, 2, 3), (0, 1, 0), (0, 1, 0), (1, 1, 1))
    found = outcomes(server, controller, requests(10, tokens=40), prefill_tokens=8)
    # Two chunks, 8 tokens and then 2 behind 8 others, and one prompt's end.
    prompt = 2e4 + 1e4 + 2 * 8.0 + 5e6
    assert found[0].predicted_s == pytest.approx(prompt + 0.011)
    # The whole prompt and the token of the ordinary step are new to the drafter.
    behind = 10 + int(found[0].accepted_length[0])
    expected = 1.0 + 0.1 * behind + 100 + 10 * 2 + 0.010 + 0.001 * 4
    assert found[1].predicted_s == pytest.approx(expected)
    # An ordinary step costs no draft, but leaves its tokens to be caught up with.
    assert found[2].predicted_s == pytest.approx(0.011)
    behind = sum(int(o.accepted_length[0]) for o in found[1:4])
    assert found[4].predicted_s == pytest.approx(1.0 + 0.1 * behind + 0.010 + 0.001 * 2)
    assert controller.views[4].pricing is not None
    assert controller.views[4].pricing.undrafted_tokens[0] == behind  # type: ignore[attr-defined]


def test_the_next_request_in_a_slot_starts_undrafted(
    server: LiveServer, by_hand: HardwareProfile
) -> None:
    server.profile = by_hand
    controller = Trees((1, 1, 1))
    outcomes(server, controller, requests(9, 4, 6, 7, 5, tokens=6))
    seen: set[int] = set()
    for view in controller.views:
        for slot in np.flatnonzero(view.active).tolist():
            if view.request[slot] not in seen:
                seen.add(int(view.request[slot]))
                undrafted = view.pricing.undrafted_tokens[slot]  # type: ignore[union-attr]
                assert undrafted == view.context_tokens[slot]
    assert seen == set(range(5))


def test_the_drafter_agrees_on_what_it_has_run(
    server: LiveServer, by_hand: HardwareProfile
) -> None:
    server.profile = by_hand
    engine = server.engine(requests(9, 4, 6, tokens=20))
    controller = Trees((2, 2, 3), (0, 1, 0), (3, 1, 3))
    while (view := engine.next_decision()) is not None:
        done = server.drafter.rows.done  # type: ignore[attr-defined]
        assert (engine.drafted_to[view.active] == done[view.active]).all()
        engine.run_iteration(view, controller)


def test_a_controller_can_price_its_plans(server: LiveServer, by_hand: HardwareProfile) -> None:
    server.profile = by_hand
    controller = Trees((2, 1, 2))
    found = outcomes(server, controller, requests(5, 9))
    for view, outcome in zip(controller.views[1:], found[1:], strict=True):
        if (view.remaining_tokens[view.active] < 4).any():
            continue  # the engine cuts trees that a request has no tokens left for
        assert view.pricing is not None
        plan = uniform_plan(view.limits, 2, 1, 2)
        assert view.pricing.step_s(plan) == pytest.approx(outcome.predicted_s)
        assert view.pricing.step_s(plan._replace(node_budget=1)) < outcome.predicted_s
        assert view.pricing.verify_s([2, 8]) == pytest.approx([0.012, 0.018])


def test_predictions_are_exposed(server: LiveServer, by_hand: HardwareProfile) -> None:
    server.profile = by_hand
    metrics = ServingMetrics()
    engine = server.engine(requests(5, 9))
    serve_observed(engine, Trees((2, 1, 2)), [metrics])
    iterations = engine.counters["iterations"]
    assert f"draftgym:prediction_error_ratio_count {iterations}" in metrics.text()
    assert metrics.predicted.values[()] > 5e6  # each prompt's end alone costs that by hand
    quiet = ServingMetrics()
    server.profile = None
    serve_observed(server.engine(requests(5)), Trees((2, 1, 2)), [quiet])
    assert not quiet.predicted.values and not quiet.prediction_error.counts


# -- the node budget -----------------------------------------------------------------------------


def test_the_engine_sizes_the_node_budget_where_it_is_asked_to(
    server: LiveServer, by_hand: HardwareProfile
) -> None:
    def verified(budget_steps: float | None) -> set[int]:
        trees = Trees((3, 3, 9), budget_steps=budget_steps)
        found = outcomes(server, trees, requests(5, 9, 7, tokens=30))
        both = [o for o in found if int(o.ran.sum()) == 3][:-1]
        return {int(o.verified.sum()) for o in both}

    server.profile = by_hand
    # One token takes 11 ms; twice that leaves 12 tokens, of which three are roots.
    assert verified(2.0) == {12}
    assert max(verified(None)) > 12
    assert verified(1.0) == {3}  # the roots alone take longer: ordinary decoding
    server.profile = None
    assert max(verified(2.0)) > 12  # nothing to size it by


def test_a_budget_below_the_machines_stays(server: LiveServer, by_hand: HardwareProfile) -> None:
    class Frugal(Trees):
        def plan(self, view: View) -> Plan:
            return super().plan(view)._replace(node_budget=4)

    server.profile = by_hand
    found = outcomes(server, Frugal((3, 3, 9), budget_steps=3.0), requests(5, 9))
    assert max(int(o.verified.sum()) for o in found) == 2 + 4


def test_the_budget_on_offer_leaves_the_roots_out(
    server: LiveServer, by_hand: HardwareProfile
) -> None:
    server.profile = by_hand
    engine = server.engine(requests(5, 9, 7))
    view = engine.next_decision()
    assert view is not None and view.pricing is not None
    assert view.pricing.node_budget(2.0) == 12 - 3
    assert view.pricing.node_budget(1.0) == 0
    with pytest.raises(UserError, match="above 0"):
        view.pricing.node_budget(math.nan)


# -- controllers that cannot do without ----------------------------------------------------------


def test_without_a_profile_decoding_is_ordinary_counted_and_told_once(
    server: LiveServer, caplog: pytest.LogCaptureFixture, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path))
    server.use_profile()
    controller, metrics = Priced((2, 1, 2)), ServingMetrics()
    with caplog.at_level(logging.WARNING, logger="draftgym.profile"):
        for _ in range(2):
            engine = server.engine(requests(3, tokens=6))
            serve_observed(engine, controller, [metrics])
            assert engine.counters["drafted"] == 0
            assert engine.counters["unpriced"] == engine.counters["iterations"] == 5
    assert not controller.views  # it was never asked
    assert [r.getMessage() for r in caplog.records] == [
        "controller priced needs a hardware profile, so requests are decoded without "
        f"speculation: there is none; measure one with `{server.identity.command}`"
    ]
    assert 'draftgym:fallbacks_total{reason="no_profile"} 10' in metrics.text()


def test_with_a_profile_the_controller_decides(
    server: LiveServer, by_hand: HardwareProfile, caplog: pytest.LogCaptureFixture
) -> None:
    server.profile = by_hand
    controller = Priced((2, 1, 2))
    engine = server.engine(requests(3, tokens=6))
    engine.serve(controller)
    assert engine.counters["drafted"] > 0 and engine.counters["unpriced"] == 0
    assert controller.views and not caplog.records


def test_who_needs_none_is_left_alone(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    assert not Controller.needs_profile
    engine = server.engine(requests(3, tokens=6))
    engine.serve(Trees((2, 1, 2)))
    assert engine.counters["drafted"] > 0 and engine.counters["unpriced"] == 0
    assert not caplog.records


# -- where the profile comes from ----------------------------------------------------------------


def test_a_server_takes_the_profile_that_fits_it(
    server: LiveServer, by_hand: HardwareProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path))
    own = dataclasses.replace(by_hand, identity=server.identity)
    own.save()
    server.use_profile()
    assert server.profile == own
    foreign = by_hand.save(tmp_path / "foreign.json")
    with pytest.raises(UserError, match=r"another set-up \(.*model imaginary, here tiny"):
        server.use_profile(foreign)
    assert server.profile == own
