"""Policies that set prices, in training: engines stepped in turn, the start, a whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from engine.errors import UserError
from engine.request import Request
from envs.replay import make_replay
from envs.serve import ServeEnv
from policies.action_codec import BoxCodec, TierCodec
from policies.learned import LearnedPrices
from policies.price_actions import PriceActions
from tests.test_algorithms import SHORT, quiet, settings, workload  # noqa: F401  (a fixture)
from tests.tiny_recording import CLASSES, asked, replay_server
from train import session
from train.agreement import compare
from train.algorithms.arguments import arguments_of
from train.algorithms.registry import ALGORITHMS
from train.config import TrainConfig
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.first_model import new_model
from train.saved_model import load_model
from train.watched_singles import WatchedSingles

TABLE = PriceActions(CLASSES)


def few(generator: np.random.Generator) -> list[Request]:
    """Six requests."""
    return list(asked(6, 12, float(generator.uniform(0.01, 0.05))))


def environments(count: int) -> list[ServeEnv]:
    """Short episodes under prices, of gaps between arrivals drawn by the seed."""
    server = replay_server()
    return [
        make_replay(server=server, actions=TABLE, decide_every=2, requests=few)
        for _ in range(count)
    ]


def actions(steps: int, count: int) -> np.ndarray:
    """Drawn evenly, [T, R, D]."""
    rng = np.random.default_rng(7)
    return rng.integers(0, TABLE.nvec, (steps, count, len(TABLE.nvec)))


def test_engines_in_turn_are_stable_baselines3s_own_vector_of_them() -> None:
    ours = WatchedSingles(environments(2))
    theirs = DummyVecEnv([lambda env=env: env for env in environments(2)])  # type: ignore[misc]
    ours.seed(3)
    theirs.seed(3)
    np.testing.assert_array_equal(ours.reset(), np.asarray(theirs.reset()))
    over = 0
    for chosen in actions(50, 2):
        mine, their = ours.step(chosen), theirs.step(chosen)
        for a, b in zip(mine[:3], their[:3], strict=True):
            # Theirs rounds rewards.
            np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
        for a, b, is_over in zip(mine[3], their[3], mine[2], strict=True):
            assert a.keys() == b.keys() and a["clock_s"] == b["clock_s"]
            assert a["TimeLimit.truncated"] == b["TimeLimit.truncated"] == is_over
            if is_over:
                np.testing.assert_array_equal(a["terminal_observation"], b["terminal_observation"])
                over += 1
    assert over > 2
    assert not np.shares_memory(mine[0], ours.step(chosen)[0])


def test_figures_are_those_of_the_steps() -> None:
    env = WatchedSingles(environments(2), span_s=1e9)
    env.seed(0)
    env.reset()
    infos: list[dict[str, Any]] = []
    done = actions(25, 2)
    for chosen in done:
        infos += env.step(chosen)[3]
    found, total_s = env.figures(), sum(info["elapsed_s"] for info in infos)
    attained, finished = (sum(info[name] for info in infos) for name in ("attained", "finished"))
    assert finished > 2 and found["slo/attainment"] == attained / finished
    valid = sum(info["valid_tokens"] for info in infos)
    assert found["slo/valid_tps"] == pytest.approx(valid / total_s)
    running = np.array(TABLE.running)[done[..., 4]].mean()
    assert found["action/running"] == pytest.approx(running)
    assert found["action/weight/chat"] == pytest.approx(
        np.array(TABLE.weights)[done[..., 1]].mean()
    )
    short = WatchedSingles(environments(2), span_s=0.05)
    short.seed(0)
    short.reset()
    for chosen in done:
        short.step(chosen)
    assert 0 < short.elapsed_s < 0.5 * total_s, "the window moves"


def test_neighbours_may_share_their_episodes() -> None:
    env = WatchedSingles(environments(4))
    env.shared_by = 2
    env.seed(1)
    env.reset()
    for _ in range(5):
        seen = np.asarray(env.step(np.tile(TABLE.neutral, (4, 1)))[0])
    np.testing.assert_array_equal(seen[::2], seen[1::2])
    assert (seen[0] != seen[2]).any()


def test_steps_after_a_restore_are_the_same() -> None:
    env, fresh = WatchedSingles(environments(2)), WatchedSingles(environments(2))
    env.seed(2)
    env.reset()
    done = actions(45, 2)
    for chosen in done[:25]:
        env.step(chosen)
    taken = env.snapshot()
    expected = [env.step(chosen)[0] for chosen in done[25:]]
    figures = env.figures()
    seen = fresh.restore(taken)
    assert seen is not None and seen.shape == (2, len(env.envs[0].features))
    np.testing.assert_array_equal([fresh.step(chosen)[0] for chosen in done[25:]], expected)
    assert fresh.figures() == figures
    with pytest.raises(UserError, match="number of environments"):
        WatchedSingles(environments(3)).restore(taken)


def priced(name: str, workload: Path, **values: Any) -> TrainConfig:  # noqa: F811
    """A short run that sets prices on two engines."""
    options = {"set": ("n_envs=2", *SHORT[name]), "actions": "prices", **values}
    return settings(name, workload, **options)


def test_an_untrained_policy_begins_with_slack_priced(workload: Path) -> None:  # noqa: F811
    for name in ("ppo", "sac"):
        config = priced(name, workload, set=("n_envs=1",))
        config.check()
        server, arguments = replay_server(), arguments_of(config)
        draw = drawing(server, config.serving, served_workload(config.serving))
        env = environment(server, draw, config, arguments)
        assert isinstance(env, WatchedSingles)
        kind = BoxCodec if name == "sac" else TierCodec
        assert isinstance(env.codec, kind) and env.codec.table == TABLE
        model = new_model(env, config, arguments)
        width = len(env.envs[0].features)
        rows = np.random.default_rng(0).uniform(0, 1, (4, 3, width))
        chosen = env.codec.decode(model.greedy(rows.astype(np.float32))[0])
        assert (chosen == TABLE.neutral).all()


@pytest.mark.parametrize("name", ["dqn", "qrdqn", "maskable-ppo"])
def test_who_chooses_whole_plans_sets_no_prices(name: str, workload: Path) -> None:  # noqa: F811
    with pytest.raises(UserError, match=f"--policy {name} --actions prices: .* whole plans; take"):
        priced(name, workload).check()
    with pytest.raises(UserError, match="take one of ppo, a2c, recurrent-ppo, sac, tqc"):
        ALGORITHMS[name].codec(TABLE, [CLASSES])


def test_a_run_goes_through_and_on(workload: Path, tmp_path: Path) -> None:  # noqa: F811
    config = replace(
        priced("ppo", workload, decisions=64, held_out_every=0), out=tmp_path / "prices"
    )
    config.check()
    run = session.train(config, lambda _: replay_server(), quiet())
    model = load_model(run.checkpoint, ALGORITHMS["ppo"])
    controller = LearnedPrices.load(run.controller)
    assert isinstance(controller, LearnedPrices)
    assert compare(model, controller, np.random.default_rng(0)).holds
    assert "slack-priced chooses trees" in (run.controller / "card.md").read_text(encoding="utf-8")
    assert len(replay_server().engine(asked(4, 8)).serve(controller)) == 4
    on = replace(priced("ppo", workload, decisions=96, held_out_every=0, set=()), resume=run.path)
    on.check()
    session.train(on, lambda _: replay_server(), quiet())
    at_once = replace(
        priced("ppo", workload, decisions=96, held_out_every=0), out=tmp_path / "at-once"
    )
    other = session.train(at_once, lambda _: replay_server(), quiet())
    resumed, whole = (load_model(r.checkpoint, ALGORITHMS["ppo"]) for r in (run, other))
    assert resumed.num_timesteps == whole.num_timesteps == 96
    for mine, theirs in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        assert (mine == theirs).all(), "a resumed run is the uninterrupted one"
