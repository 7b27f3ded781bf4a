"""Both faces of the batched environment against single `DraftGym/Serve-v0` environments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from engine.errors import UserError
from engine.replay.server import ReplayServer
from engine.workload import WorkloadConfig
from envs.observing import row_of
from envs.reward import GoodputReward
from policies.actions import SHARES, ActionTable
from policies.price_actions import PriceActions
from tests.tiny_recording import replay_server
from train.sb3_vec_env import FleetVecEnv
from train.watched_fleet import WatchedFleet
from train.window import Watched

COUNT, SEED = 3, 11
TABLE = ActionTable(("coding", "chat", "summarization"))
NAMES = ("seen", "reward", "end", "cut", "info")
WORK = WorkloadConfig(name="short", duration_s=0.7, load=1.2, max_tokens=16)


def server_with_stages() -> ReplayServer:
    """Every stage draws its own watts."""
    server = replay_server()
    power = replace(server.profile.power, stages={"draft": 20.0, "prefill": 35.0}, idle_watts=5.0)
    server.profile = replace(server.profile, power=power)
    return server


OPTIONS: list[dict[str, Any]] = [
    {},
    {"server": server_with_stages},
    {"decide_every": 3, "reward": GoodputReward("rate")},
    {"decide_every": 2, "reward": GoodputReward("integral", 2.0, 0.1, 0.3, 0.7, 0.01, 0.5)},
    {"max_decisions": 9, "decide_every": 2},
    {"observation": "per-request"},
    {
        "actions": ActionTable(("coding", "chat", "summarization"), running=SHARES),
        "decide_every": 3,
        "reward": GoodputReward(switch_tokens=0.5),
    },
]
NAMES_OF_OPTIONS = ["plain", "stages", "rate", "priced", "cut", "requests", "sized"]


def single(**options: Any) -> gymnasium.Env:
    """The registered environment."""
    return gymnasium.make(envs.SERVE_ID, **{"server": replay_server, "workload": WORK, **options})


def vector(count: int = COUNT, **options: Any) -> Any:
    """The registered vector environment."""
    return gymnasium.make_vec(
        envs.SERVE_ID, count, **{"server": replay_server, "workload": WORK, **options}
    )


def sb3(count: int = COUNT, **options: Any) -> FleetVecEnv:
    """The same for Stable-Baselines3."""
    return FleetVecEnv(vector(count, **options).unwrapped.serving)


def actions(steps: int, count: int = COUNT, table: ActionTable = TABLE) -> np.ndarray:
    """Random ones [steps, count, D]."""
    return np.random.default_rng(1).integers(0, table.nvec, (steps, count, len(table.nvec)))


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal to the last bit, dictionaries key by key, NaN equal to NaN."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for name in theirs:
            assert_same(ours[name], theirs[name], f"{where}/{name}")
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES_OF_OPTIONS)
def test_gymnasiums_face_gives_what_single_environments_give(options: dict[str, Any]) -> None:
    alone = SyncVectorEnv([lambda: single(**options)] * COUNT)
    assert alone.autoreset_mode == AutoresetMode.NEXT_STEP
    together = vector(**options)
    assert together.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert together.observation_space == alone.observation_space
    assert together.action_space == alone.action_space
    for ours, theirs in zip(together.reset(seed=SEED), alone.reset(seed=SEED), strict=True):
        assert_same(ours, theirs)
    ends = 0
    for action in actions(90, table=options.get("actions", TABLE)):
        steps = zip(together.step(action), alone.step(action), strict=True)
        for name, (ours, theirs) in zip(NAMES, steps, strict=True):
            assert_same(ours, theirs, name)
            ends += int(theirs.sum()) if name == "cut" else 0
    assert ends >= 2 * COUNT  # several episodes


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES_OF_OPTIONS)
def test_sb3s_face_gives_what_single_environments_give(options: dict[str, Any]) -> None:
    alone, together = [single(**options) for _ in range(COUNT)], sb3(**options)
    together.seed(SEED)
    seen: Any = together.reset()
    for i, env in enumerate(alone):
        observation, info = env.reset(seed=SEED + i)
        assert_same(row_of(seen, i), observation)
        assert_same(together.reset_infos[i], info)
    ends = 0
    for action in actions(90, table=options.get("actions", TABLE)):
        seen, rewards, over, infos = together.step(action)
        for i, env in enumerate(alone):
            observation, reward, terminated, truncated, info = env.step(action[i])
            assert (rewards[i], over[i], terminated) == (reward, truncated, False)
            assert infos[i].pop("TimeLimit.truncated") == truncated
            if truncated:
                ends += 1
                assert_same(infos[i].pop("terminal_observation"), observation)
                observation, fresh = env.reset()
                assert_same(together.reset_infos[i], fresh)
            assert_same(row_of(seen, i), observation)
            assert_same(infos[i], info)
    assert ends >= 2 * COUNT


@pytest.mark.parametrize("table", [TABLE, ActionTable(TABLE.class_names, running=SHARES)])
def test_a_watched_fleet_of_one_has_a_watched_environments_figures(table: ActionTable) -> None:
    alone = Watched(single(actions=table), 0.5)
    fleet = WatchedFleet(sb3(1, actions=table).serving, 0.5)
    fleet.seed(SEED)
    fleet.reset()
    alone.reset(seed=SEED)
    assert fleet.figures() == alone.figures() == {}
    for i, action in enumerate(actions(70, 1, table)):
        fleet.step(action)
        if alone.step(action[0])[3]:
            alone.reset()
        if i % 10 == 9:
            assert fleet.figures() == pytest.approx(alone.figures())
    assert "slo/attainment" in fleet.figures()
    assert ("action/running" in fleet.figures()) == (len(table.running) > 1)


def test_another_profile_is_noticed() -> None:
    changed = replay_server()
    verify = replace(changed.profile.verify, request_s=changed.profile.verify.request_s * 1.001)
    changed.profile = replace(changed.profile, verify=verify)
    one, other = vector(), vector(server=changed)
    one.reset(seed=SEED)
    other.reset(seed=SEED)
    action = actions(1)[0]
    assert (one.step(action)[0] != other.step(action)[0]).any()


def test_one_seed_stands_in_for_the_first_resets() -> None:
    told, given = vector(seed=SEED), vector()
    assert_same(told.reset()[0], given.reset(seed=SEED)[0])
    assert (told.reset()[0] != given.reset(seed=SEED)[0]).any()


def test_a_mask_resets_some_environments_alone() -> None:
    env = vector()
    env.reset(seed=SEED)
    before = env.step(actions(1)[0])[0]
    mask = np.array([False, True, False])
    after, info = env.reset(seed=SEED, options={"reset_mask": mask})
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert info["_clock_s"].tolist() == mask.tolist()
    for options in ({"speed": 1}, {"reset_mask": np.ones(2, np.bool_)}):
        with pytest.raises(UserError, match="expected no other option"):
            env.reset(options=options)


def arrays_in(value: Any) -> list[np.ndarray]:
    """All arrays in nested containers."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return (
        [a for part in parts for a in arrays_in(part)]
        if isinstance(value, (dict, list, tuple))
        else []
    )


@pytest.mark.parametrize("make", [vector, sb3])
def test_every_step_returns_arrays_of_its_own(make: Callable[[], Any]) -> None:
    env = make()
    steps = [arrays_in(env.reset())]
    copies = [[array.copy() for array in steps[0]]]
    serving = env.unwrapped.serving if make is vector else env.serving
    for action in actions(40):
        steps.append(arrays_in(env.step(action)))
        copies.append([array.copy() for array in steps[-1]])
        inside = arrays_in(serving.fleet.state)
        assert not any(np.may_share_memory(a, part) for a in steps[-1] for part in inside)
        assert not any(np.may_share_memory(a, b) for a in steps[-1] for b in steps[-2])
    for step, copy in zip(steps, copies, strict=True):
        for array, before in zip(step, copy, strict=True):
            np.testing.assert_array_equal(array, before)


def test_what_no_fleet_serves_is_refused() -> None:
    lossy = ActionTable(("coding", "chat", "summarization"), margins=(1.0, 0.6))
    with pytest.raises(UserError, match=r"without a margin; .* single environments"):
        vector(actions=lossy, lossless=False)
    with pytest.raises(UserError, match="decide_every is 0"):
        vector(decide_every=0)
    with pytest.raises(UserError, match="use one class table for both"):
        vector(actions=ActionTable(("one",)))
    with pytest.raises(UserError, match=r"actions are prices, .* take an ActionTable, or single"):
        vector(actions=PriceActions(TABLE.class_names))
    env = vector()
    with pytest.raises(UserError, match="call reset"):
        env.step(actions(1)[0])
    env.reset(seed=1)
    with pytest.raises(UserError, match="actions of shape"):
        env.step(actions(1)[0][:2])
    with pytest.raises(UserError, match="is outside the table"):
        env.step(actions(1)[0] + 9)


def test_who_acts_may_lie_anyhow_in_memory_but_not_in_another_shape() -> None:
    def stepped(acting: Any) -> Any:
        serving = vector().unwrapped.serving
        for replica in range(COUNT):
            serving.reset(replica, SEED + replica)
        return serving.step(np.zeros((COUNT, len(serving.actions.nvec)), np.int64), acting)

    some = np.array([True, False, True])
    strided = np.repeat(some, 2)[::2]
    assert not strided.flags.c_contiguous
    for one, other in zip(stepped(some), stepped(strided), strict=True):
        np.testing.assert_equal(one, other)
    for shape in ((COUNT + 1,), (COUNT, 1)):
        with pytest.raises(UserError, match="acting has the shape"):
            stepped(np.ones(shape, np.bool_))
