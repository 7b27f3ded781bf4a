"""Snapshots of fleets and environments: step sequences after a restore, in another process too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs.snapshot as of_envs
import train.sb3_vec_env as of_sb3
from engine.errors import UserError
from engine.replay.fleet import snapshot as of_fleets
from engine.replay.fleet.fleet import Fleet
from engine.replay.fleet.steps import serve
from engine.replay.recording_folder import mark_done, write_manifest, write_shard
from engine.snapshot_file import load, save
from engine.workload.disturbances import Disturbance, Disturbances
from envs.reward import GoodputReward
from tests.snapshot_episodes import (
    COUNT,
    KINDS,
    WORK,
    begin,
    books,
    digest,
    follow,
    make,
    play,
    server,
)
from tests.snapshot_walk import assert_same_data, carried_objects, constants
from tests.test_fleet import PROMISES, trace
from tests.tiny_recording import known_profile, recorded, replay_server

ROOT = Path(__file__).resolve().parents[1]
CARRIERS = {"single": of_envs.SINGLE, "vector": of_envs.MANY, "sb3": of_sb3.CARRIER}


@settings(max_examples=4)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
    taken_at=st.integers(0, 60),
    options=st.sampled_from(
        [{}, {"decide_every": 3, "reward": GoodputReward("rate")}, {"max_decisions": 9}]
    ),
)
def test_steps_after_a_restore_are_the_same(
    kind: str, seed: int, taken_at: int, options: dict[str, Any]
) -> None:
    of = replay_server()
    env = make(kind, of, **options)
    begin(kind, env, seed)
    play(env, taken_at, seed)
    taken = env.snapshot()
    expected = play(env, 30, 5), books(kind, env)
    fresh = make(kind, of, **options)
    begin(kind, fresh, 1)
    play(fresh, 7, 1)  # whatever it did before
    for again in (env, fresh):
        seen = again.restore(taken)
        assert digest(seen) == digest(again.restore(taken))
        assert_same_data(again.snapshot().state, taken.state)
        assert digest((play(again, 30, 5), books(kind, again))) == digest(expected)


def test_several_episodes_follow_and_what_was_observed_last_is_given_again() -> None:
    of = replay_server()
    for kind in KINDS:
        env = make(kind, of)
        begin(kind, env, 3)
        *_, last = play(env, 33, 3)
        taken = env.snapshot()
        steps = play(env, 40, 5)
        ends = sum(np.sum(step[2 if kind == "sb3" else 3]) for step in steps if len(step) > 2)
        assert ends >= (1 if kind == "single" else COUNT)
        np.testing.assert_array_equal(env.restore(taken), last[0])
        assert digest(play(env, 40, 5)) == digest(steps)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny recording and its profile as files."""
    manifest, recording = recorded()
    place = tmp_path / "recording"
    place.mkdir()
    write_manifest(place, manifest)
    write_shard(place, recording, 0)
    mark_done(place)
    known_profile(manifest).save(tmp_path / "profile.json")
    return tmp_path


def test_another_process_goes_on_from_a_file(folder: Path) -> None:
    of, expected = server(folder), []
    for kind in KINDS:
        env = make(kind, of)
        begin(kind, env, 8)
        *_, last = play(env, 25, 2)
        save(env.snapshot(), folder / f"{kind}.npz")
        expected.append(f"{kind} {digest(last[0])} {follow(kind, env)}")
    command = [sys.executable, "-m", "tests.snapshot_episodes", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == expected


def test_an_environment_that_was_never_reset_is_carried_too() -> None:
    def seeded(kind: str) -> Any:
        env = make(kind, of, seed=4)
        if kind == "sb3":
            env.seed(4)
        return env

    of = replay_server()
    for kind in KINDS:
        env = seeded(kind)
        taken = env.snapshot()
        begin(kind, env, 9)
        env.restore(taken)
        with pytest.raises(UserError, match="reset"):
            play(env, 1, 0)
        first = seeded(kind)
        assert digest(env.reset()) == digest(first.reset())


# -- the fleet alone ---------------------------------------------------------------------------


WRONG = {"acceptance": 0.5, "draft_time": 2.0, "power_cap": 0.5, "memory": 0.5}


def a_fleet(replicas: int = 2, wrong: tuple[str, ...] = ()) -> Fleet:
    """With episodes of their own, some way on, in which some things go wrong."""
    fleet = Fleet(replay_server(), replicas, PROMISES)
    for replica in range(replicas):
        of = [Disturbance(kind, 0.1, 0.6 + 0.5 * replica, WRONG[kind], 0.05) for kind in wrong]
        fleet.begin(replica, trace(replica), Disturbances(of))
    fleet.serve(fleet.plan(3, 2, 8), 9)
    return fleet


@pytest.mark.parametrize("wrong", [(), tuple(WRONG)], ids=["plain", "disturbed"])
def test_a_fleet_goes_on_where_it_was(wrong: tuple[str, ...]) -> None:
    fleet, fresh = a_fleet(wrong=wrong), Fleet(replay_server(), 2, PROMISES)
    taken = fleet.snapshot()
    plan = fleet.plan(2, 4, 12, 20)

    def in_the_books(of: Fleet) -> str:
        return repr([of.records(replica) for replica in range(2)])  # NaN is equal to NaN

    before = in_the_books(fleet)
    tally, ended = fleet.serve(plan, 15)
    after = in_the_books(fleet)
    for again in (fleet, fresh):
        again.restore(taken)
        assert in_the_books(again) == before
        ours = again.serve(plan, 15)
        np.testing.assert_array_equal(ours.tally, tally)
        np.testing.assert_array_equal(ours.ended, ended)
        assert in_the_books(again) == after
        again.begin(0, trace(9))  # and it is a fleet like any other
        assert again.serve(plan, 100).tally["emitted"].all()


def test_kernels_are_not_compiled_anew_for_what_was_read(tmp_path: Path) -> None:
    fleet = a_fleet()
    save(fleet.snapshot(), tmp_path / "fleet.npz")
    known = len(serve.signatures)
    fleet.restore(load(tmp_path / "fleet.npz"))
    fleet.serve(fleet.plan(2, 2, 4), 5)
    assert len(serve.signatures) == known


def test_a_fleet_of_another_size_or_rule_is_refused() -> None:
    taken = a_fleet().snapshot()
    with pytest.raises(UserError, match="another number of replicas: 2, where this Fleet has 3"):
        a_fleet(3).restore(taken)
    with pytest.raises(UserError, match="another class table"):
        Fleet(replay_server(), 2).restore(taken)
    with pytest.raises(UserError, match="another KV pool: 768 tokens"):
        Fleet(replay_server(slots=3), 2, PROMISES).restore(taken)


# -- nothing is forgotten ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_called_constant_is(kind: str) -> None:
    env, carrier = make(kind, replay_server()), CARRIERS[kind]
    begin(kind, env, 3)
    before = constants(carrier, env)
    play(env, 40, 3)
    assert constants(carrier, env) == before and len(before) > 8


def test_what_is_left_out_is_there_by_that_name() -> None:
    for kind, carrier in CARRIERS.items():
        env = make(kind, replay_server())
        begin(kind, env, 3)
        play(env, 2, 3)
        env.snapshot()
        for of in carried_objects(carrier, env):
            for base in type(of).__mro__:
                left = carrier.left_out.get(base, of_envs.LeftOut())
                names = set(left.constant + left.rebuilt) - set(of_envs.FACE)
                assert all(hasattr(of, name) for name in names), (base, names)


@pytest.mark.parametrize("name", ["_generators", "_decisions", "live", "plan"])
def test_a_forgotten_field_is_noticed(name: str) -> None:
    left_out = dict(of_envs.MANY.left_out)
    own = left_out[of_envs.ServeFleet]
    left_out[of_envs.ServeFleet] = of_envs.LeftOut((*own.constant, name), own.rebuilt)
    carrier = of_envs.Carrier(left_out, of_envs.MANY.records, {})
    env = make("vector", replay_server())
    begin("vector", env, 3)
    before = constants(carrier, env)
    play(env, 40, 3)
    env.serving.live[0] = False
    after = constants(carrier, env)
    assert {n for n in after if after[n] != before[n]} == {f"ServeFleet.{name}"}


def test_other_settings_are_refused() -> None:
    of = replay_server()
    taken = {kind: make(kind, of).snapshot() for kind in KINDS}
    for kind in KINDS:
        with pytest.raises(UserError, match="another decide_every: 1, where"):
            make(kind, of, decide_every=2).restore(taken[kind])
    with pytest.raises(UserError, match="of a ServeVectorEnv, and a WatchedFleet was asked"):
        make("sb3", of).restore(taken["vector"])


def test_the_fleets_state_is_carried_field_by_field() -> None:
    state = a_fleet().state
    left = {"rules", "classes", "costs", "book", "scratch"}
    assert set(of_fleets.CARRIER.carried(state) or ()) == set(state._fields) - left
    assert WORK.rate_rps
