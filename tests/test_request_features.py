"""What requests show: bounds, values, and a fleet's rows against single environments'."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import envs
from engine.errors import UserError
from engine.protocol import Limits
from policies.actions import ActionTable
from policies.features import feature_table, schema_hash
from policies.request_features import (
    observe_requests,
    request_table,
    require_finite_rows,
    row_bounds,
)
from tests.test_features import CLASSES, make_view
from tests.tiny_recording import SLOTS, replay_server

FEATURES = request_table(CLASSES)
TABLE = ActionTable(CLASSES)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 1e3, 1e7]))
def test_rows_are_finite_bounded_and_fresh(seed: int, scale: float) -> None:
    view = make_view(np.random.default_rng(seed), scale)
    for array in (view.slack_tokens, view.proposed, view.draft_confidence):
        array[~view.active] = np.nan  # nobody looks there
    rows, mask = observe_requests(view)
    again, _ = observe_requests(view)
    low, high = row_bounds(FEATURES, 16)
    assert rows.dtype == mask.dtype == np.float32 and rows.shape == (16, len(FEATURES))
    assert np.isfinite(rows).all() and (rows >= low).all() and (rows <= high).all()
    assert (mask == view.active).all() and not rows[~view.active].any()
    assert (rows == again).all() and not np.shares_memory(rows, again)


def test_values() -> None:
    active = np.zeros(16, bool)
    active[[1, 5]] = True
    slo_class, slack = np.full(16, 77), np.zeros(16)
    slo_class[[1, 5]], slack[[1, 5]] = [2, 0], [-8, 99]
    objective = np.full(16, np.inf)
    objective[5] = 0.1
    proposed, accepted = np.zeros((16, 8)), np.zeros((16, 8))
    proposed[5, 0], accepted[5, 0] = 4, 3
    since = np.full((16, 8), 999)
    since[5, 1] = 0
    view = make_view(
        np.random.default_rng(0),
        active=active,
        slo_class=slo_class,
        slack_tokens=slack,
        tpot_objective_s=objective,
        proposed=proposed,
        accepted=accepted,
        since_proposed=since,
        queue_age_s=np.full(16, 4095 * 0.05),
        tokens_out=np.zeros(16, np.int64),
    )
    rows, _ = observe_requests(view)
    names = [f.name for f in FEATURES]
    first, second = (dict(zip(names, rows[s].tolist(), strict=True)) for s in (1, 5))
    expected = {
        "request.slack": 1.0,
        "request.pace": 0.5,
        "request.acceptance_1": 3.5 / 5,
        "request.evidence_1": 0.5,
        "request.acceptance_2": 0.5,
        "request.since_1": 1.0,
        "request.since_2": 0.0,
        "request.emitted": 0.0,
        "request.queue_age": 1.0,
        "request.is_coding": 1.0,
        "request.is_summarization": 0.0,
    }
    assert {name: second[name] for name in expected} == pytest.approx(expected)
    assert (first["request.slack"], first["request.pace"]) == (-0.25, 0.0)
    assert first["request.is_summarization"] == 1.0 and len(set(names)) == len(names)


def test_shallow_engines_keep_the_schema_and_a_nan_is_named() -> None:
    view = make_view(np.random.default_rng(4), limits=Limits(max_depth=3))
    rows, _ = observe_requests(view)
    assert rows.shape[1] == len(FEATURES)
    require_finite_rows(rows, FEATURES)
    slot = int(np.flatnonzero(view.active)[2])
    view.draft_confidence[slot] = np.nan
    with pytest.raises(UserError, match=rf"request\.draft_confidence of slot {slot} "):
        require_finite_rows(observe_requests(view)[0], FEATURES)


def test_the_hash_is_of_requests() -> None:
    assert schema_hash(FEATURES) not in (
        schema_hash(feature_table(CLASSES)),
        schema_hash(request_table(CLASSES[:2])),
    )


def test_a_fleet_shows_what_single_environments_show() -> None:
    options: dict[str, Any] = {
        "server": replay_server,
        "workload": "steady",
        "load": 2.0,
        "observation": "per-request",
        "decide_every": 2,
        "max_decisions": 25,
    }
    alone = SyncVectorEnv([lambda: gymnasium.make(envs.SERVE_ID, **options)] * 2)
    fleet: Any = gymnasium.make_vec(envs.SERVE_ID, 2, **options)
    assert fleet.observation_space == alone.observation_space
    space = fleet.single_observation_space
    assert space["requests"].shape == (SLOTS, len(FEATURES))
    ours, theirs = fleet.reset(seed=5)[0], alone.reset(seed=5)[0]
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        assert set(ours) == set(theirs) == {"engine", "requests", "mask"}
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
        assert fleet.observation_space.contains(ours)
        seen.add(int(ours["mask"].sum()))
        actions = rng.integers(0, TABLE.nvec, (2, len(TABLE.nvec)))
        ours, theirs = fleet.step(actions)[0], alone.step(actions)[0]
    assert len(seen) > 2  # slots come and go


def test_a_snapshot_is_of_one_size_of_observation() -> None:
    def made(observation: str) -> Any:
        env = gymnasium.make(
            envs.SERVE_ID, server=replay_server, workload="steady", observation=observation
        ).unwrapped
        env.reset(seed=1)
        return env

    env = made("per-request")
    rng = np.random.default_rng(0)
    for _ in range(7):
        env.step(rng.integers(0, TABLE.nvec))
    taken = env.snapshot()
    expected = [env.step(rng.integers(0, TABLE.nvec))[0] for _ in range(3)]
    rng = np.random.default_rng(0)
    rng.integers(0, TABLE.nvec, (7, len(TABLE.nvec)))
    fresh = made("per-request")
    fresh.restore(taken)
    for observation in expected:
        again = fresh.step(rng.integers(0, TABLE.nvec))[0]
        for name, value in observation.items():
            np.testing.assert_array_equal(again[name], value)
    with pytest.raises(UserError, match="another observation"):
        made("aggregate").restore(taken)


def test_another_size_is_refused() -> None:
    with pytest.raises(UserError, match="observation is 'all'; expected one of aggregate"):
        gymnasium.make(envs.SERVE_ID, server=replay_server, observation="all")
    with pytest.raises(UserError, match="grows no trees"):
        gymnasium.make_vec(envs.SERVE_ID, 2, server=replay_server, observation="learning-to-draft")
