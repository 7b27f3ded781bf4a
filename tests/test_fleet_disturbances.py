"""A disturbed fleet against disturbed engines of their own: the same to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from engine.errors import UserError
from engine.orders import OrderName
from engine.replay.fleet.faults import levels_needed
from engine.replay.fleet.fleet import Fleet
from engine.replay.power_levels import level_of
from engine.replay.server import ReplayServer
from engine.request import RequestRecord
from engine.workload import (
    Disturbance,
    Disturbances,
    DrawnDisturbance,
    Regime,
    WorkloadConfig,
)
from tests.test_fleet import PROMISES, SHARES, ByClass, plan_of, trace
from tests.test_fleet_envs import actions, assert_same, single, vector
from tests.test_replay_disturbances import staged_server
from tests.tiny_recording import replay_server

SEEDS, BUDGETS = (1, 2, 3), (0, 7, 20, 256)


def drifting(value: float) -> Disturbances:
    """From the first tenth of a second to the end."""
    return Disturbances([Disturbance("acceptance", 0.1, math.inf, value)])


WRONG: dict[str, Disturbances] = {
    "worse": drifting(0.6),
    "better": drifting(1.7),
    "ramps": Disturbances(
        [
            Disturbance("acceptance", 0.0, 0.9, 0.2, ramp_s=0.4),
            Disturbance("acceptance", 0.8, 3.0, 2.0, ramp_s=0.3),
            Disturbance("draft_time", 0.2, 1.1, 2.5, ramp_s=0.3),
        ]
    ),
    "capped": Disturbances(
        [
            Disturbance("power_cap", 0.2, 0.7, 0.4, ramp_s=0.2),
            Disturbance("power_cap", 0.9, math.inf, 0.55),
            Disturbance("draft_time", 0.3, 0.6, 0.5),
        ]
    ),
    "hardly": Disturbances([Disturbance("power_cap", 0.2, 0.7, 0.02)]),
    "all": Disturbances(
        [
            Disturbance("memory", 0.05, 1.0, 0.9, ramp_s=0.3),
            Disturbance("acceptance", 0.1, 0.6, 1.5),
            Disturbance("draft_time", 0.1, 0.8, 2.0),
            Disturbance("power_cap", 0.3, 2.0, 0.5),
        ]
    ),
}
SQUEEZED = Disturbances(
    [Disturbance("memory", i / 5 + 0.08, i / 5 + 0.18, 0.5 + 0.25 * (i % 2)) for i in range(20)]
)


def alone(server: ReplayServer, seed: int, wrong: Disturbances) -> list[RequestRecord]:
    """The records of an engine."""
    engine = server.engine(trace(seed), PROMISES, disturbances=wrong)
    return engine.serve(ByClass(seed, BUDGETS, SHARES))


def together(server: ReplayServer, wrong: list[Disturbances]) -> list[list[RequestRecord]]:
    """The records of a fleet, a replica for each seed."""
    fleet = Fleet(server, len(SEEDS), PROMISES)
    controllers = [ByClass(seed, BUDGETS, SHARES) for seed in SEEDS]
    for replica, seed in enumerate(SEEDS):
        fleet.begin(replica, trace(seed), wrong[replica])
    while (ready := fleet.ready).any():
        fleet.serve(plan_of(controllers, ready))
    return [fleet.records(replica) for replica in range(len(SEEDS))]


@pytest.mark.parametrize("make", [replay_server, staged_server], ids=["whole", "staged"])
def test_every_disturbed_replica_is_a_disturbed_engine(make: Callable[[], ReplayServer]) -> None:
    server = make()
    server.settings = replace(server.settings, prefill_tokens=24)
    plain = [list(map(repr, alone(server, seed, Disturbances()))) for seed in SEEDS]
    kinds = list(WRONG)
    for i in range(0, len(kinds), 2):
        # One replica is left alone beside two that have other troubles.
        wrong = [WRONG[kinds[i]], Disturbances(), WRONG[kinds[(i + 1) % len(kinds)]]]
        for records, seed, each, usual in zip(
            together(server, wrong), SEEDS, wrong, plain, strict=True
        ):
            assert list(map(repr, records)) == list(map(repr, alone(server, seed, each)))
            assert (list(map(repr, records)) == usual) == (not each.of)


@pytest.mark.parametrize("order", ["fcfs", "priority", "edf"])
def test_who_gives_way_for_memory_is_who_would_on_an_engine(order: OrderName) -> None:
    """Also where all who decode give way while prompts are read, and at a cut."""
    server = replay_server()
    for prefill, horizon_s in ((9, math.inf), (400, 0.5)):
        server.settings = replace(
            server.settings, order=order, prefill_tokens=prefill, horizon_s=horizon_s
        )
        pressed = together(server, [SQUEEZED, Disturbances(), WRONG["all"]])
        for records, seed, each in zip(
            pressed, SEEDS, (SQUEEZED, Disturbances(), WRONG["all"]), strict=True
        ):
            assert list(map(repr, records)) == list(map(repr, alone(server, seed, each)))
        assert sum(record.preempted for record in pressed[0]) > 1
        assert sum(record.preempted for record in pressed[1]) == 0
        assert max(record.requeued_s for record in pressed[0]) > 0


def test_small_pages_that_are_withdrawn_are_refused() -> None:
    fleet = Fleet(replay_server(page_size=16), 1, PROMISES)
    with pytest.raises(UserError, match="pages hold 16 tokens; a fleet knows memory pressure"):
        fleet.begin(0, trace(1), SQUEEZED)


TROUBLED = WorkloadConfig(
    name="troubled",
    regimes=(Regime(0.3, 1.2), Regime(0.4, 1.4, acceptance=0.6, draft_time=2.0)),
    duration_s=0.7, max_tokens=16,
    drawn_disturbances=(
        DrawnDisturbance("power_cap", (0.0, 0.3), (0.2, 0.4), (0.3, 0.8), ramp_s=0.1),
        DrawnDisturbance("memory", (0.1, 0.3), (0.2, 0.4), (0.4, 0.8), probability=0.8),
    ),
)  # fmt: skip


@pytest.mark.parametrize("constant", [None, 20.0])
def test_environments_see_what_goes_wrong_as_single_ones_do(constant: float | None) -> None:
    options: dict[str, Any] = {
        "server": lambda: staged_server(power_cap_watts=constant),
        "workload": TROUBLED,
    }
    env, both = vector(2, **options), SyncVectorEnv([lambda: single(**options)] * 2)
    assert_same(env.reset(seed=3)[0], both.reset(seed=3)[0])
    caps = set()
    for action in actions(60, 2):
        for ours, theirs in zip(env.step(action), both.step(action), strict=True):
            assert_same(ours, theirs)
        first: Any = both.envs[0].unwrapped
        caps.add(first.engine.power.cap_watts)
    assert len(caps) > (3 if constant is None else 1) and max(caps) == (constant or math.inf)


def test_a_new_episode_forgets_what_was_wrong() -> None:
    server = replay_server()
    fleet = Fleet(server, 1, PROMISES)
    many = [Disturbance("draft_time", i / 50, i / 50 + 0.01, 2.0) for i in range(40)]
    for wrong in (WRONG["capped"], Disturbances(many), drifting(0.5), Disturbances()):
        fleet.begin(0, trace(4), wrong)
        while fleet.ready.any():
            fleet.serve(fleet.plan(4, 3, 12))
        other = Fleet(server, 1, PROMISES)
        other.begin(0, trace(4), wrong)
        while other.ready.any():
            other.serve(other.plan(4, 3, 12))
        assert list(map(repr, fleet.records(0))) == list(map(repr, other.records(0)))


def test_all_levels_of_a_ramp_are_worked_out_beforehand() -> None:
    fleet = Fleet(replay_server(), 1, PROMISES)
    fleet.begin(0, trace(1), WRONG["capped"])
    known = set(levels_needed(fleet.state).tolist())
    shares = WRONG["capped"].values(np.linspace(0, 3, 5000))[:, -1]
    assert {level_of(share) for share in shares.tolist()} <= known
    assert len(known) < 70 and (fleet.state.costs.levels.row[sorted(known)] >= 0).all()
