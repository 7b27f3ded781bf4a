"""Every algorithm through a whole run on replay: trained, resumed, exported, compared."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from engine.errors import UserError
from engine.overload import OverloadRule
from policies.action_codec import ActionCodec, BoxCodec, TierCodec, presets_of
from policies.actions import ActionTable
from policies.learned import LearnedController
from tests.test_fleet_envs import SEED, sb3, single
from tests.tiny_recording import asked, replay_server
from train import session
from train.agreement import compare
from train.algorithms.arguments import NETWORK, arguments_of
from train.algorithms.registry import ALGORITHMS
from train.algorithms.timing import TimedSteps
from train.config import Evaluation, Learning, Serving, TrainConfig
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.export import export, network_of, onnx_logits
from train.first_model import new_model
from train.run_folder import RunFolder
from train.saved_model import load_model, save_model
from train.sb3_vec_env import FleetVecEnv
from train.window import Watched

WORKLOAD = "duration_s = 3.0\nload = 0.9\n"
ON_POLICY = ("n_steps=16", f"{NETWORK}.net_arch=[16]")
PPO = (*ON_POLICY, "batch_size=64", "n_epochs=1")
OFF_POLICY = ("learning_starts=40", "batch_size=16", "buffer_size=1200", f"{NETWORK}.net_arch=[16]")
SHORT = {
    "ppo": PPO,
    "maskable-ppo": PPO,
    "recurrent-ppo": (*PPO, f"{NETWORK}.lstm_hidden_size=8"),
    "a2c": ON_POLICY,
    "dqn": (*OFF_POLICY, "gradient_steps=1"),
    "qrdqn": (*OFF_POLICY, f"{NETWORK}.n_quantiles=3"),
    "sac": OFF_POLICY,
    "tqc": OFF_POLICY,
}


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return path


def settings(name: str, workload: Path, **learning: Any) -> TrainConfig:
    values: dict[str, Any] = {"minutes": 5.0, "decisions": 128, "decide_every": 2}
    values |= {"set": ("n_envs=4", *SHORT[name]), **learning}
    return TrainConfig(
        learning=Learning(policy=name, **values),
        serving=Serving(workload=str(workload), max_tokens=16),
        evaluation=Evaluation(0),
    )


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


@pytest.fixture(scope="module", params=ALGORITHMS)
def done(
    request: pytest.FixtureRequest, workload: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, RunFolder]:
    """A run that went through."""
    name = request.param
    config = replace(settings(name, workload), out=tmp_path_factory.mktemp("runs") / name)
    config.check()
    return name, session.train(config, lambda _: replay_server(), quiet())


def test_a_run_trains_saves_and_exports(done: tuple[str, RunFolder]) -> None:
    name, run = done
    model = load_model(run.checkpoint, ALGORITHMS[name])
    assert run.is_done and model.num_timesteps == 128 and model.updates > 0
    controller = LearnedController.load(run.controller)
    assert controller.name == name and controller.manifest.training["updates"] == model.updates
    assert f"by {name}." in (run.controller / "card.md").read_text(encoding="utf-8")
    engine = replay_server().engine(asked(4, 8))
    assert len(engine.serve(controller)) == 4


def test_shipped_actions_are_the_trained_policys(
    done: tuple[str, RunFolder], tmp_path: Path
) -> None:
    """With weights drawn at random, since so short a training leaves all choices alike."""
    name, run = done
    model = load_model(run.checkpoint, ALGORITHMS[name])
    generator = torch.Generator().manual_seed(1)
    for parameter in model.policy.parameters():
        parameter.data.normal_(0.0, 0.3, generator=generator)
    told = LearnedController.load(run.controller).manifest.training
    controller = export(model, tmp_path / "controller", 2, told)
    found = compare(model, controller, np.random.default_rng(3))
    assert (found.observations, found.differing_actions) == (1000, 0)
    assert found.largest_difference < 1e-4
    rows = np.random.default_rng(4).uniform(0, 1, (20, model.observation_space.shape[0]))  # type: ignore[index]
    chosen = {tuple(controller.network.action(row.astype(np.float32))) for row in rows}
    assert len(chosen) > 1
    for parameter in model.policy.parameters():
        parameter.data.normal_(0.0, 0.3, generator=generator)
    assert not compare(model, controller, np.random.default_rng(3)).holds


def test_a_resumed_run_goes_on(done: tuple[str, RunFolder], workload: Path, tmp_path: Path) -> None:
    name, run = done
    before = load_model(run.checkpoint, ALGORITHMS[name])
    config = replace(settings(name, workload, decisions=192, set=()), resume=run.path)
    config.check()
    assert arguments_of(config).n_envs == 4, "what was set before still holds"
    env = made(config)
    after: Any = load_model(run.checkpoint, ALGORITHMS[name], env, arguments_of(config), 0.9)
    assert after.gamma == 0.9 and after.num_timesteps == before.num_timesteps
    for mine, theirs in zip(
        after.policy.state_dict().values(), before.policy.state_dict().values(), strict=True
    ):
        assert (mine == theirs).all()
    if ALGORITHMS[name].is_off_policy:
        buffer = after.replay_buffer
        assert buffer.gamma == 0.9 and buffer.pos == 128 // 4 and not buffer.full
        assert (buffer.elapsed_s[:32] > 0).all() and (buffer.elapsed_s[32:] == 0).all()
    after.learn(64, reset_num_timesteps=False, callback=TimedSteps())
    assert after.num_timesteps == 192 and after.updates > before.updates


def made(config: TrainConfig, **server: Any) -> Any:
    """The environment that the settings mean."""
    replay = replay_server()
    replay.settings = replace(replay.settings, **server)
    draw = drawing(replay, config.serving, served_workload(config.serving))
    return environment(replay, draw, config, arguments_of(config))


def test_a_network_cannot_change_in_a_resumed_run(done: tuple[str, RunFolder]) -> None:
    name, run = done
    config = TrainConfig(Learning(policy=name, set=(f"{NETWORK}.net_arch=[9]",)), resume=run.path)
    with pytest.raises(UserError, match=r"policy_kwargs.net_arch=\[9\]: .* keeps its network"):
        load_model(run.checkpoint, ALGORITHMS[name], None, arguments_of(config))


def test_only_networks_without_memory_are_written_as_onnx(done: tuple[str, RunFolder]) -> None:
    pytest.importorskip("onnx")
    name, run = done
    shape, weights = network_of(load_model(run.checkpoint, ALGORITHMS[name]))
    if name == "recurrent-ppo":
        with pytest.raises(UserError, match="a recurrent policy is not written"):
            onnx_logits(shape, weights)
    else:
        assert onnx_logits(shape, weights)


@pytest.mark.parametrize("name", ["maskable-ppo", "recurrent-ppo", "dqn", "sac"])
def test_one_engine_at_a_time_learns_too(name: str, workload: Path) -> None:
    """As live serves, and replay where the fleet does not serve its settings."""
    config = settings(name, workload)
    env = made(config, overload=OverloadRule("reject"))
    assert isinstance(env, Watched)
    model = new_model(env, config, arguments_of(config))
    model.learn(48, callback=TimedSteps())
    assert model.updates > 0
    assert any(key.startswith("action/depth") for key in env.figures())


TABLE = ActionTable(("coding", "chat", "summarization"))
CODECS = [
    TierCodec(TABLE),
    TierCodec(TABLE, masked=True),
    presets_of(TABLE, [("coding",), ("chat", "summarization")]),
    BoxCodec(TABLE),
]


@pytest.mark.parametrize("codec", CODECS, ids=["tiers", "masked", "presets", "box"])
def test_both_faces_take_a_codecs_actions_alike(codec: ActionCodec) -> None:
    one, many = Watched(single(), codec=codec), FleetVecEnv(sb3(1).serving, codec)
    plain: Any = sb3(1)
    assert one.action_space == many.action_space
    one.action_space.seed(SEED)
    one.reset(seed=SEED)
    for env in (many, plain):
        env.seed(SEED)
        env.reset()
    masked = 0
    for _ in range(12):
        masks = one.action_masks()
        assert many.has_attr("action_masks")
        assert (many.env_method("action_masks")[0] == masks).all()
        masked += (~masks).sum()
        action = one.action_space.sample()
        given = np.asarray(action)[None]
        mine = one.step(action)
        seen: Any = many.step(given)
        tiers = plain.step(codec.decode(given))
        assert (mine[0] == seen[0][0]).all() and (seen[0] == tiers[0]).all()
        assert mine[1] == seen[1][0] == tiers[1][0]
        if mine[3]:
            break
    assert masked > 0


def test_a_ring_of_experience_is_kept_in_order(workload: Path, tmp_path: Path) -> None:
    config = settings("dqn", workload, decisions=None)
    env = made(config)
    small = replace(config, learning=replace(config.learning, set=(
        "n_envs=4", *SHORT["dqn"], "buffer_size=40",
    )))  # fmt: skip
    model: Any = new_model(env, small, arguments_of(small))
    model.learn(4 * 13, callback=TimedSteps())
    buffer = model.replay_buffer
    assert buffer.full and buffer.pos == 3
    save_model(model, tmp_path / "m.zip")
    oldest_first = np.roll(buffer.rewards, -3, axis=0)
    # As it was, since samples go by the entry; oldest first where it has grown.
    for given, kept, pos in ((small, buffer.rewards, 3), (config, oldest_first, 10)):
        again: Any = load_model(tmp_path / "m.zip", ALGORITHMS["dqn"], env, arguments_of(given))
        assert (again.replay_buffer.rewards[:10] == kept).all()
        assert again.replay_buffer.full is (given is small)
        assert again.replay_buffer.pos == pos
