"""`--preset learning-to-draft`: what it sets, whole runs on replay and live, what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from stable_baselines3.common.vec_env import VecEnv

from engine.errors import UserError
from engine.protocol import Limits
from engine.tiny import tiny_server
from envs.learning_to_draft import learning_to_draft
from policies.learned import LearnedController
from policies.learned_paths import LearnedPaths
from policies.manifest import PATHS
from policies.path_features import COPIES
from policies.registry import make
from tests.tiny_recording import replay_server
from train import export_run, session
from train.agreement import compare
from train.algorithms.arguments import NETWORK, arguments_of
from train.algorithms.registry import ALGORITHMS
from train.algorithms.schedules import schedule
from train.command_line import parse_with_files
from train.config import ExportConfig, Learning, TrainConfig
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.export import export
from train.first_model import new_model, per_second, reward_scale
from train.run_folder import RunFolder, settings_files
from train.saved_model import load_model
from train.task import task_of
from train.watched_singles import WatchedSingles

PRESET = ("--preset", "learning-to-draft")
NETS = f"{NETWORK}.net_arch"
WORKLOAD = "duration_s = 2.0\nrate_rps = 4.0\nmix = {coding = 1.0}\n"
SMALL = f"{NETS}={{pi: [16, 8], vf: [16]}}"
SETTINGS = ("n_steps=32", "batch_size=16", "learning_rate=1e-3", SMALL)
SHORT = ("--max-tokens", "16", "--eval-seeds", "0", "--set", *SETTINGS)


@cache
def parsed(*words: str) -> TrainConfig:
    config = parse_with_files(TrainConfig, [*PRESET, *words], "train.py", settings_files)
    config.check()
    return config


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def short_judgements() -> Iterator[None]:
    """Two held-out episodes of two seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.held_out.EPISODES", 2)
        patch.setattr("train.held_out.SECONDS", 2.0)
        yield


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


def trained(*words: str) -> RunFolder:
    return session.train(parsed(*words), lambda _: replay_server(slots=1), quiet())


@pytest.fixture(scope="module")
def run(
    workload: str, short_judgements: None, tmp_path_factory: pytest.TempPathFactory
) -> RunFolder:
    """A short run on replay that went through, judged on the way."""
    out = str(tmp_path_factory.mktemp("runs") / "preset")
    words = ("--workload", workload, "--out", out, *SHORT)
    return trained(*words, "--decisions", "96", "--held-out-every", "64")


# -- what it sets ----------------------------------------------------------------------------------


def test_it_is_what_was_published() -> None:
    config = parsed()
    given = arguments_of(config)
    values = given.of(1)
    rate = values.pop("learning_rate")
    assert values == {
        "n_steps": 128, "batch_size": 64, "n_epochs": 1, "ent_coef": 0.0, "gae_lambda": 0.95,
    }  # fmt: skip
    assert [rate(left) for left in (1.0, 0.995, 0.99, 0.0)] == pytest.approx([0, 1.5e-4, 3e-4, 0])
    assert given.network() == {"net_arch": {"pi": [512, 256], "vf": [1024, 512]}}
    assert given.n_envs == 1 and config.serving.slots == 1 and config.learning.decide_every == 1
    assert per_second(config.learning.half_life_s) == 0.0 and reward_scale(0.02, config) == 1.0
    task, options = task_of("tiers", config.preset), learning_to_draft()
    assert (task.actions, task.classes) == (options["actions"], options["classes"])
    assert task.observation == options["observation"]
    assert task.reward(config.reward.goodput()) == options["reward"]
    work = served_workload(config.serving)
    for name in ("duration_s", "rate_rps", "mix"):
        assert getattr(work, name) == getattr(options["workload"], name)
    live = parsed("--backend", "live")
    assert arguments_of(live).values == given.values


def test_everything_can_be_set_otherwise(tmp_path: Path) -> None:
    words = ("--minutes", "1", "--half-life-s", "0.5", "--policy", "a2c", "--decide-every", "2")
    config = parsed(*words)
    learning = config.learning
    assert (learning.minutes, learning.half_life_s, learning.policy) == (1.0, 0.5, "a2c")
    assert 0 < reward_scale(0.02, config) < 0.1 and learning.decide_every == 2
    values = arguments_of(parsed("--set", "n_steps=64", f"{NETWORK}.net_arch={{pi: [8]}}")).values
    assert values["n_steps"] == 64 and values["n_epochs"] == 1
    assert values[NETWORK]["net_arch"] == {"pi": [8], "vf": [1024, 512]}
    file = tmp_path / "mine.toml"
    file.write_text('preset = "learning-to-draft"\nminutes = 3.0\n', encoding="utf-8")
    named = parse_with_files(TrainConfig, ["--config", str(file)], "train.py", settings_files)
    assert named.preset == "learning-to-draft" and named.serving.slots == 1
    assert named.learning.minutes == 3.0 and named.learning.half_life_s == 0.0


def test_schedules_are_told_from_other_words() -> None:
    assert [schedule("lin_0.002")(left) for left in (1.0, 0.5, 0.0)] == [0.002, 0.001, 0.0]
    for word in ("warm", "warm_", "warm_0", "warm_x", "cos_0.1", "lin_-1"):
        assert schedule(word) is None
    assert schedule(0.1) == 0.1


@pytest.mark.parametrize(
    ("group", "changes", "says"),
    [
        ("serving", {"slots": 4}, "--slots 4: observes one request at a time"),
        ("learning", {"actions": "prices"}, "--actions prices: has trees of its own"),
        ("learning", {"actions": None}, "--actions sized-tiers: has trees of its own"),
        ("learning", {"policy": "maskable-ppo"}, "masks are worked out from features"),
        ("learning", {"imitate": "chain(2)"}, "--imitate chain(2): imitation records features"),
        ("reward", {"limits": ("waiting=0.2",)}, "--limits: charges tokens by the time"),
        ("reward", {"centre_rewards": True}, "--centre-rewards: charges tokens by the time"),
        ("episodes", {"shared_arrivals": 2}, "expected a divisor of the 1 engines"),
        ("learning", {"set": (f"{NETS}={{pi: 8}}",)}, "expected widths of hidden layers"),
        ("learning", {"set": (f"{NETS}={{qf: [8]}}",)}, "or {pi: […], vf: […]}"),
        ("learning", {"policy": "dqn", "set": (f"{NETS}={{pi: [8]}}",)}, "[64,64] for all of it"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    group: str, changes: dict[str, Any], says: str
) -> None:
    base = parsed()
    config = replace(base, **{group: replace(getattr(base, group), **changes)})
    with pytest.raises(UserError) as caught:
        config.check()
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_decision_is_never_credited_with_its_tokens_alone() -> None:
    config = TrainConfig(Learning(half_life_s=0.0))
    with pytest.raises(UserError, match="the time that they took would not"):
        config.check()


def test_an_untrained_policy_prefers_no_tree(workload: str) -> None:
    config = parsed("--workload", workload, *SHORT)
    server, arguments = replay_server(slots=1), arguments_of(config)
    draw = drawing(server, config.serving, served_workload(config.serving))
    env = environment(server, draw, config, arguments)
    assert isinstance(env, WatchedSingles) and isinstance(env, VecEnv) and env.num_envs == 1
    policy: Any = new_model(env, config, arguments).policy
    chosen = policy.get_distribution(policy.obs_to_tensor(env.reset())[0])
    depths = int(task_of("tiers", config.preset).actions.nvec[0])
    probability = chosen.log_p[0, 0, :depths].exp()
    assert probability.max() < 1.2 * probability.min()


# -- whole runs ------------------------------------------------------------------------------------


def test_a_run_is_trained_judged_and_exported(run: RunFolder, tmp_path: Path) -> None:
    model = load_model(run.checkpoint, ALGORITHMS["ppo"])
    assert run.is_done and model.num_timesteps == 96 and model.updates == 3
    rows = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    logged = set().union(*rows)
    assert {"eval/score", "action/depth/coding", "reward/valid", "train/loss"} <= logged
    controller = make(str(run.path))
    assert isinstance(controller, LearnedPaths) and controller.manifest.observation == PATHS
    generator = torch.Generator().manual_seed(1)
    for parameter in model.policy.parameters():  # so short a training leaves all choices alike
        parameter.data.normal_(0.0, 0.3, generator=generator)
    told = controller.manifest.training
    drawn = export(model, tmp_path / "drawn", 1, told, observation=PATHS)
    found = compare(model, drawn, np.random.default_rng(0))
    assert found.holds and found.largest_difference < 1e-4
    assert told["observed"] is None
    card = (run.controller / "card.md").read_text(encoding="utf-8")
    assert "of one request at a time, by the paths drafted last, every 1 iterations" in card
    made = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    assert made["preset"] == "learning-to-draft"
    again = ExportConfig(run.path, which="best", out=tmp_path / "again")
    folder = export_run.export_run(again, quiet())
    assert LearnedController.load(folder).manifest.observation == PATHS


def test_a_run_goes_on_as_if_it_never_stopped(
    run: RunFolder, workload: str, tmp_path: Path
) -> None:
    words = ["--resume", str(run.path), "--decisions", "160"]
    resumed = parse_with_files(TrainConfig, words, "train.py", settings_files)
    resumed.check()
    assert resumed.preset == "learning-to-draft" and resumed.learning.set == SETTINGS
    session.train(resumed, lambda _: replay_server(slots=1), quiet())
    whole = trained(
        *("--workload", workload, "--out", str(tmp_path / "whole"), *SHORT),
        *("--decisions", "160", "--held-out-every", "64"),
    )
    ours, theirs = (load_model(r.checkpoint, ALGORITHMS["ppo"]) for r in (run, whole))
    assert ours.num_timesteps == theirs.num_timesteps == 160
    for mine, their in zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True):
        assert (mine == their).all(), "a resumed run is the uninterrupted one"


def test_a_run_of_another_task_does_not_take_the_preset(tmp_path: Path) -> None:
    other = RunFolder.create(replace(TrainConfig(), out=tmp_path / "other"), datetime.now())
    words = ["--resume", str(other.path), *PRESET]
    with pytest.raises(UserError, match="was not trained with it"):
        parse_with_files(TrainConfig, words, "train.py", settings_files)


def test_it_is_compared_and_trains_on_live(workload: str, tmp_path: Path) -> None:
    server = tiny_server(limits=Limits(slots=1))
    words = ("--backend", "live", "--workload", workload, "--max-tokens", "8", "--decisions", "64")
    short = ("--prompt-tokens", "24", "--set", *SETTINGS)
    compared = ("--eval-seeds", "1", "--eval-seconds", "2", "--baselines", "chain(2)")
    config = parsed(*words, *compared, "--out", str(tmp_path / "live"), *short)
    run = session.train(config, lambda _: server, quiet())
    assert run.is_done and run.best.is_file()
    results = json.loads((run.path / "results.json").read_text(encoding="utf-8"))
    assert list(results["controllers"]) == ["ppo (this run)", "chain(2)"]
    inputs = LearnedController.load(run.controller).manifest.network.layers[0]
    assert inputs == 8 + 5 * 64 + 2 * COPIES
