"""What the engine refuses, and what it clips and counts: requests and plans that make no sense."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.limits import clip_plan
from engine.protocol import Controller, Plan, View, uniform_plan
from engine.request import Request
from engine.serving import LiveServer
from engine.settings import EngineSettings
from engine.tiny import tiny_server
from tests.random_plans import Choice, ListedPlans, as_plan
from tests.test_engine import CAPACITY, LIMITS, requests, started

LONGEST = CAPACITY - LIMITS.max_nodes - 1


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, 10, limits=LIMITS, capacity_tokens=CAPACITY)
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (Request(7, 0, [], 4, 0.0), "request 7: the prompt is empty"),
        (Request(7, 0, [1], 0, 0.0), "request 7: max_tokens is 0; expected at least 1"),
        (Request(7, 0, [1], -3, 0.0), "max_tokens is -3"),
        (Request(7, 0, [1] * (LONGEST - 3), 4, 0.0), "exceed the context of 53; shorten"),
        (Request(7, 0, [1], 4, 0.0, frozenset(range(5))), "has 5 stop tokens; at most 4"),
        (Request(7, 3, [1], 4, 0.0), "request 7: slo_class is 3; expected 0 to 2, the place of"),
        (Request(7, -1, [1], 4, 0.0), "request 7: slo_class is -1; expected 0 to 2"),
        (Request(7, 0, [1, 10, 2], 4, 0.0), "the prompt has token 10; expected ids from 0 to 9"),
        (Request(7, 0, [1, -1, 99], 4, 0.0), "request 7: the prompt has token -1; expected ids"),
        (Request(7, 0, [1], 4, np.inf), "request 7: arrival_s is inf; expected a finite time"),
        (Request(7, 0, [1], 4, -np.inf), "request 7: arrival_s is -inf"),
        (Request(7, 0, [1], 4, np.nan), "request 7: arrival_s is nan"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_at_once(
    server: LiveServer, request_: Request, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        server.engine([*requests(4), request_])


def test_the_longest_request_is_served(server: LiveServer) -> None:
    request = Request(0, 0, [1] * (LONGEST - 6), 6, 0.0, frozenset({11, 12, 13, 14}))
    server.engine([request]).serve(ListedPlans([Choice(4, 3, 10, 30, 256, 3)]))
    assert len(request.output) == 6


@pytest.mark.parametrize("tokens", [0, -5])
def test_prompts_must_be_read(tokens: int) -> None:
    with pytest.raises(UserError, match=f"prefill_tokens is {tokens}; expected at least 1"):
        EngineSettings(LIMITS, CAPACITY, prefill_tokens=tokens)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (EngineSettings(LIMITS._replace(slots=4), CAPACITY), r"slots=4.*made for.*slots=3"),
        (EngineSettings(LIMITS._replace(slots=2), CAPACITY), r"slots=2.*made for.*slots=3"),
        (EngineSettings(LIMITS._replace(max_nodes=11), CAPACITY), "max_nodes=11.*max_nodes=10"),
        (EngineSettings(LIMITS, CAPACITY + 1), "capacity_tokens is 65, but its backend holds 64"),
    ],
)
def test_settings_that_the_backend_was_not_made_for_are_refused(
    server: LiveServer, settings: EngineSettings, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        server.engine(requests(4), settings=settings)


def test_a_smaller_capacity_than_the_backends_is_served(server: LiveServer) -> None:
    request = Request(0, 0, [1, 2, 3], 6, 0.0)
    settings = EngineSettings(LIMITS, CAPACITY - 20)
    server.engine([request], settings=settings).serve(ListedPlans([Choice(4, 3, 10, 30, 256, 3)]))
    assert len(request.output) == 6


def with_fields(plan: Plan, **fields: object) -> Plan:
    """A plan with other contents."""
    return plan._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"margin": np.array([1.0, np.nan, 1.0])}, "margin is nan; expected a number above 0"),
        ({"margin": np.array([1.0, 0.0, 1.0])}, "margin is 0.0; expected a number above 0"),
        ({"margin": np.array([1.0, -0.5, 1.0])}, "margin is -0.5"),
        ({"margin": np.ones(2)}, r"margin has shape \(2,\), expected \(3,\)"),
        ({"margin": 1.0}, r"margin has shape \(\), expected \(3,\)"),
        ({"depth": np.ones(4, np.int64)}, r"depth has shape \(4,\), expected \(3,\)"),
        ({"width": np.ones((1, 3), np.int64)}, r"width has shape \(1, 3\), expected \(3,\)"),
        ({"nodes": 5}, r"nodes has shape \(\), expected \(3,\)"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(
    server: LiveServer, fields: dict[str, object], sentence: str
) -> None:
    engine, view = started(server, 4, 5, 6)

    class Wrong(Controller):
        def plan(self, view: View) -> Plan:
            return with_fields(uniform_plan(view.limits, 2, 2, 4), **fields)

    with pytest.raises(UserError, match=sentence):
        engine.run_iteration(view, Wrong())


def test_a_margin_of_an_empty_slot_means_nothing(server: LiveServer) -> None:
    engine, view = started(server, 4)

    class OnlyMine(Controller):
        def plan(self, view: View) -> Plan:
            margin = np.where(view.active, 1.0, np.nan)
            return with_fields(uniform_plan(view.limits, 2, 2, 4), margin=margin)

    assert engine.run_iteration(view, OnlyMine()).clipped == 0


def test_entries_outside_the_limits_are_clipped_and_counted() -> None:
    plan = as_plan(Choice([9, -1, 2], [0, 3, 9], [99, 5, -4], 8, 64, 3), 3)
    everyone, plenty = np.ones(3, np.bool_), np.full(3, 50)
    clipped, outside = clip_plan(plan, LIMITS, everyone, plenty)
    assert outside == 6
    assert clipped.depth.tolist() == [4, 0, 0]  # no nodes, so nothing is drafted for the third
    assert clipped.width.tolist() == [1, 3, 3]
    assert clipped.nodes.tolist() == [10, 5, 0]
    # Of slots that do not decode nothing is counted; nor is a depth cut by the tokens left.
    alone = np.array([False, False, True])
    clipped, outside = clip_plan(plan, LIMITS, alone, plenty)
    assert outside == 2
    assert clipped.depth[:2].tolist() == [0, 0]
    inside = as_plan(Choice(4, 2, 5, 8, 64, 3), 3)
    clipped, outside = clip_plan(inside, LIMITS, everyone, np.array([1, 3, 0]))
    assert outside == 0
    assert clipped.depth.tolist() == [0, 2, 0]


def test_clipped_entries_reach_the_outcome_and_the_counters(server: LiveServer) -> None:
    engine, view = started(server, 4, 5)
    outcome = engine.run_iteration(view, ListedPlans([Choice(9, 9, 99, 30, 64, 3)]))
    assert outcome.clipped == engine.counters["clipped"] == 6
    assert (outcome.verified[:2] <= LIMITS.max_nodes + 1).all()
