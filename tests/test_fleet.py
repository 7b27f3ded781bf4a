"""A fleet of replicas against engines of their own: the same records to the last bit."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from engine.classes import ClassTable, SLOClass
from engine.errors import UserError
from engine.orders import OrderName
from engine.overload import OverloadRule
from engine.protocol import Controller, Plan, View
from engine.replay.fleet.fleet import Fleet
from engine.replay.fleet.state import FleetPlan
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.request import Request, RequestRecord
from engine.sampling.params import SamplingParams
from tests.tiny_recording import asked, replay_server

# Whoever waits for long is lifted, and every objective counts.
PROMISES = ClassTable(
    (
        SLOClass("coding", 1.2, ttft_ratio=9.0, priority=2),
        SLOClass("chat", 1.7, completion_ratio=60.0, queue_age_ratio=30.0, priority=1),
        SLOClass("summarization", float("inf"), queue_age_ratio=80.0),
    )
)


SHARES = (0.01, 0.25, 0.3, 0.75, 1.0)
"""Of the slots that may be held."""


class ByClass(Controller):
    """Random plans for every class, drawn anew in each iteration; a batch budget now and then."""

    def __init__(
        self, seed: int, budgets: tuple[int, ...], shares: tuple[float, ...] = (1.0,)
    ) -> None:
        self._rng, self._budgets, self._shares = np.random.default_rng(seed), budgets, shares

    def draw(self) -> tuple[np.ndarray, ...]:
        """Depth, width, nodes [3], some of them outside the limits, the budget and the share."""
        rng = self._rng
        shape = rng.integers(-1, 10, 3), rng.integers(0, 10, 3), rng.integers(-1, 70, 3)
        return (*shape, rng.choice(self._budgets), rng.choice(self._shares))

    def plan(self, view: View) -> Plan:
        depth, width, nodes, budget, share = self.draw()
        c = np.where(view.active, view.slo_class, 0)
        plan = Plan(depth[c], width[c], nodes[c], np.ones(len(c)), int(budget))
        return plan._replace(max_running=math.ceil(share * view.limits.slots))


def plan_of(controllers: list[ByClass], ready: np.ndarray) -> FleetPlan:
    """What those whose replica is ready [R] draw, and nothing for the others."""
    drawn = [c.draw() if ready[r] else (0,) * 5 for r, c in enumerate(controllers)]
    *shape, budget, share = zip(*drawn, strict=True)
    depth, width, nodes = (
        np.array([np.broadcast_to(row, 3) for row in column], np.int64) for column in shape
    )
    return FleetPlan(depth, width, nodes, np.array(budget, np.int64), np.array(share, np.float64))


def trace(seed: int, count: int = 14, span_s: float = 1.0) -> list[RecordedRequest]:
    """Requests for random texts at random times, some at the same one; stops, and tiny answers."""
    rng = np.random.default_rng(seed)
    texts = asked(12)
    times = np.sort(rng.choice(np.linspace(0.0, span_s, 9), count))
    requests = []
    for i in range(count):
        like = texts[int(rng.integers(12))]
        tokens = int(rng.integers(1, 34))
        stops = frozenset(rng.integers(0, 64, int(rng.integers(0, 3))).tolist())
        requests.append(
            RecordedRequest(
                i, int(rng.integers(3)), like.prompt, tokens, float(times[i]), stops, text=like.text
            )
        )
    return requests


def served_alone(server: ReplayServer, seed: int, *choices: tuple) -> list[RequestRecord]:
    """The records of an engine; `choices` are budgets and shares."""
    return server.engine(trace(seed), PROMISES).serve(ByClass(seed, *choices))


def served_together(
    server: ReplayServer, seeds: list[int], *choices: tuple
) -> list[list[RequestRecord]]:
    """The records of a fleet, a replica for each seed."""
    fleet = Fleet(server, len(seeds), PROMISES)
    controllers = [ByClass(seed, *choices) for seed in seeds]
    for replica, seed in enumerate(seeds):
        fleet.begin(replica, trace(seed))
    while (ready := fleet.ready).any():
        fleet.serve(plan_of(controllers, ready))
    return [fleet.records(replica) for replica in range(len(seeds))]


@pytest.mark.parametrize("order", ["fcfs", "priority", "edf"])
@pytest.mark.parametrize("budgets", [(256,), (0, 1, 7, 20, 256)])
def test_every_replica_is_an_engine_to_the_last_bit(
    order: OrderName, budgets: tuple[int, ...]
) -> None:
    server = replay_server()
    server.settings = replace(server.settings, order=order, prefill_tokens=24)
    seeds = [1, 2, 3, 4, 5]
    together = served_together(server, seeds, budgets)
    for seed, records in zip(seeds, together, strict=True):
        assert list(map(repr, records)) == list(map(repr, served_alone(server, seed, budgets)))


def test_no_more_requests_run_than_the_plan_says() -> None:
    server, seeds = replay_server(), [1, 2, 3]
    server.settings = replace(server.settings, prefill_tokens=24)
    together = served_together(server, seeds, (256,), SHARES)
    for seed, records in zip(seeds, together, strict=True):
        alone, unbound = (served_alone(server, seed, (256,), of) for of in (SHARES, (1.0,)))
        assert list(map(repr, records)) == list(map(repr, alone))
        assert list(map(repr, records)) != list(map(repr, unbound))

    fleet = Fleet(server, 1, PROMISES)
    fleet.begin(0, [replace(request, arrival_s=0.0) for request in trace(1)])
    plan, slots = fleet.plan(2, 2, 4)._replace(running=np.array([0.3])), fleet.state.slots
    held = [int(slots["active"].sum())]
    while fleet.ready.all():
        fleet.serve(plan)
        held.append(int(slots["active"].sum()))
    assert held[0] == 4 and 2 in held  # of 4 slots: nobody is thrown out, but fewer come in
    assert max(held[held.index(2) :]) == 2


def test_a_cut_episode_tells_of_who_runs_and_who_waits() -> None:
    server = replay_server()
    server.settings = replace(server.settings, horizon_s=0.6)
    alone = served_alone(server, 1, (256,))
    assert {record.status for record in alone} == {"finished", "unfinished"}
    assert list(map(repr, served_together(server, [1], (256,))[0])) == list(map(repr, alone))


@pytest.mark.parametrize("name", ["verify", "draft_first", "draft_next", "prefill", "host"])
def test_a_changed_cost_is_noticed(name: str) -> None:
    server, changed = replay_server(), replay_server()
    for each in (server, changed):
        each.settings = replace(each.settings, prefill_tokens=5)  # prompts are read in chunks
    cost = getattr(server.profile, name)
    changed.profile = replace(
        server.profile, **{name: replace(cost, kv_token_s=cost.kv_token_s + 2**-24)}
    )
    alone = served_alone(server, 1, (256,))
    assert list(map(repr, served_together(changed, [1], (256,))[0])) != list(map(repr, alone))


def test_a_replica_begins_anew_while_others_go_on() -> None:
    fleet = Fleet(replay_server(), 2)
    fleet.begin(0, trace(1))
    fleet.begin(1, trace(2))
    plan = fleet.plan(3, 2, 8)
    for _ in range(20):
        fleet.serve(plan)
    before = fleet.state.replicas[1].copy()
    fleet.begin(0, trace(3, count=300))  # more than there was room for
    assert (fleet.state.replicas[1] == before).all()
    other = Fleet(replay_server(), 1)
    other.begin(0, trace(3, count=300))
    while fleet.ready.any():
        fleet.serve(plan)
    while other.ready.any():
        other.serve(other.plan(3, 2, 8))
    assert list(map(repr, fleet.records(0))) == list(map(repr, other.records(0)))


def test_only_those_act_that_are_told_to() -> None:
    fleet = Fleet(replay_server(), 2)
    for replica in range(2):
        fleet.begin(replica, trace(1))
    brought = fleet.serve(fleet.plan(3, 2, 8), 4, np.array([True, False]))
    assert brought.tally["iterations"].tolist() == [4, 0]
    assert fleet.serve(fleet.plan(3, 2, 8)).tally["iterations"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cancel_at_s": 1.0}, "withdrawn at 1.0 s"),
        ({"text": 99}, "asks for text 99"),
        ({"max_tokens": 1000}, "was recorded with"),
        ({"slo_class": 7}, "slo_class is 7"),
        ({"arrival_s": float("nan")}, "arrival_s is nan"),
        ({"sampling": SamplingParams(1.0)}, "asks for sampled"),
        ({"stop_strings": ("x",)}, "has stop strings"),
        ({"id": 1}, "share the id 1"),
    ],
)
def test_requests_that_nobody_serves_are_refused(change: dict, words: str) -> None:
    first, *others = asked(3)
    with pytest.raises(UserError, match=words):
        Fleet(replay_server(), 1).begin(0, [replace(first, **change), *others])


def test_what_only_a_single_engine_serves_is_refused() -> None:
    with pytest.raises(UserError, match="names no recorded text"):
        Fleet(replay_server(), 1).begin(0, [Request(0, 0, [1], 4, 0.0)])
    with pytest.raises(UserError, match=r"knows no memory pressure; .* one replica at a time"):
        Fleet(replay_server(page_size=16, kv_pool_tokens=400), 1)
    server = replay_server()
    server.settings = replace(server.settings, overload=OverloadRule("reject"))
    with pytest.raises(UserError, match="overload policy is 'reject'"):
        Fleet(server, 1)
    with pytest.raises(UserError, match="replicas is 0"):
        Fleet(replay_server(), 0)


def test_pages_without_pressure_change_nothing() -> None:
    paged, whole = replay_server(page_size=16), replay_server()
    for width, nodes in product((1, 3), (4, 30)):
        fleets = [Fleet(server, 1) for server in (paged, whole)]
        for fleet in fleets:
            fleet.begin(0, trace(4))
            while fleet.ready.any():
                fleet.serve(fleet.plan(4, width, nodes))
        assert list(map(repr, fleets[0].records(0))) == list(map(repr, fleets[1].records(0)))
