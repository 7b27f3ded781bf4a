"""Policies that observe requests one by one: trained, taken up, exported, on replay and on live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.overload import OverloadRule
from engine.protocol import Limits
from engine.tiny import tiny_server
from policies.compiled_by_request import CompiledByRequest
from policies.features import feature_table
from policies.learned import LearnedByRequest, LearnedController
from policies.registry import make
from tests import test_train
from tests.test_algorithms import made, quiet, settings, workload  # noqa: F401  (a fixture)
from tests.test_fleet_envs import SEED, sb3, single
from tests.test_resumed_training import content, killed_and_resumed
from tests.test_resumed_training import settings as resumable
from tests.test_resumed_training import train as served
from tests.tiny_recording import CLASSES, asked, replay_server
from train import session
from train.agreement import compare
from train.algorithms.arguments import arguments_of
from train.algorithms.base import Learner
from train.algorithms.registry import ALGORITHMS
from train.algorithms.timing import TimedDictBuffer, TimedSteps
from train.config import ExportConfig, Learning, TrainConfig
from train.environment_version import environment_version
from train.export import export
from train.export_run import export_run
from train.first_model import new_model
from train.held_out import HeldOut
from train.run_folder import RunFolder
from train.saved_model import load_model
from train.window import Watched

BY_REQUEST: dict[str, Any] = {"observation": "per-request"}


def scattered(model: Learner) -> Learner:
    """With weights drawn at random, since a short training leaves all choices alike."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.policy.parameters():
        parameter.data.normal_(0.0, 0.4, generator=generator)
    return model


@pytest.fixture(scope="module", params=["ppo", "a2c"])
def done(
    request: pytest.FixtureRequest,
    workload: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, RunFolder]:
    """A run that went through."""
    name = request.param
    config = settings(name, workload, **BY_REQUEST)
    config = replace(config, out=tmp_path_factory.mktemp("runs") / name)
    config.check()
    return name, session.train(config, lambda _: replay_server(), quiet())


def test_a_run_trains_and_exports(done: tuple[str, RunFolder], tmp_path: Path) -> None:
    name, run = done
    model: Any = load_model(run.checkpoint, ALGORITHMS[name])
    assert run.is_done and model.num_timesteps == 128 and model.updates > 0
    assert model.rollout_buffer_class is TimedDictBuffer
    assert (model.policy.features_extractor.queries != 0).any(), "it learned whom to look at"
    controller = make(str(run.path))
    assert type(controller) is CompiledByRequest
    assert "looking at every request" in (run.controller / "card.md").read_text(encoding="utf-8")
    assert len(replay_server().engine(asked(4, 8)).serve(controller)) == 4
    console = quiet()
    export_run(ExportConfig(run.path, out=tmp_path / "again", check=True), console)
    assert "all 1,000 actions equal" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="--onnx: a policy that observes requests is not written"):
        export_run(ExportConfig(run.path, out=tmp_path / "onnx", onnx=True), console)


def test_a_policy_is_judged_on_held_out_episodes(
    done: tuple[str, RunFolder],
    workload: Path,  # noqa: F811
) -> None:
    name, run = done
    held_out = HeldOut(made(settings(name, workload, **BY_REQUEST)), 4)
    found = held_out.serve(load_model(run.checkpoint, ALGORITHMS[name]))
    assert np.isfinite(found.score) and held_out.seen is not None
    assert held_out.seen.shape[1] == len(feature_table(CLASSES)), "what novelty is told by"


def exported(name: str, run: RunFolder, folder: Path) -> tuple[Any, LearnedController]:
    """The run's model with its weights scattered, and its export."""
    model = scattered(load_model(run.checkpoint, ALGORITHMS[name]))
    told = LearnedController.load(run.controller).manifest.training
    return model, export(model, folder / "controller", 2, told)


def test_shipped_actions_are_the_trained_policys(
    done: tuple[str, RunFolder], tmp_path: Path
) -> None:
    name, run = done
    model, controller = exported(name, run, tmp_path)
    found = compare(model, controller, np.random.default_rng(3))
    assert (found.observations, found.differing_actions) == (1000, 0)
    assert found.largest_difference < 1e-4
    encoder = model.acting().encoder
    assert encoder is not None
    with torch.no_grad():
        encoder.queries.neg_()
    assert not compare(model, controller, np.random.default_rng(3)).holds


def test_the_export_sees_and_does_in_one_engine_what_the_policy_does_in_a_fleet(
    done: tuple[str, RunFolder], tmp_path: Path
) -> None:
    name, run = done
    model, controller = exported(name, run, tmp_path)
    assert isinstance(controller, LearnedByRequest)
    options = {**BY_REQUEST, "actions": model.codec.table}
    one, many = Watched(single(**options), codec=model.codec), sb3(1, **options)
    observed: Any = one.reset(seed=SEED)[0]
    many.seed(SEED)
    side_by_side: Any = many.reset()
    chosen = set()
    for _ in range(25):
        for key, value in observed.items():
            np.testing.assert_array_equal(side_by_side[key][0], value)
        theirs = model.predict(side_by_side, deterministic=True)[0]
        action = controller.network.action(controller.inputs(observed))
        np.testing.assert_array_equal(theirs[0], action)
        chosen.add(tuple(action.tolist()))
        observed, *_, cut, _ = one.step(action)
        side_by_side = many.step(theirs)[0]
        if cut:
            break
    assert len(chosen) > 1, "it must change its mind at least once"


def test_the_weights_are_those_of_a_run_that_was_never_killed(
    workload: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = tmp_path / "short.toml"
    short.write_text("duration_s = 0.7\nrate_rps = 14.0\n", encoding="utf-8")
    whole = served(resumable("ppo", short, tmp_path / "whole", **BY_REQUEST))
    config = resumable("ppo", short, tmp_path / "again", **BY_REQUEST)
    again = killed_and_resumed(config, monkeypatch)
    for mine, other in zip(content(again, "ppo"), content(whole, "ppo"), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_one_engine_at_a_time_learns_too(workload: Path) -> None:  # noqa: F811
    """As replay where the fleet does not serve its settings."""
    config = settings("ppo", workload, **BY_REQUEST)
    env = made(config, overload=OverloadRule("reject"))
    assert isinstance(env, Watched)
    model = new_model(env, config, arguments_of(config))
    model.learn(48, callback=TimedSteps())
    assert model.updates > 0


def test_live_engines_are_trained_on_and_served(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(test_train.WORKLOAD, encoding="utf-8")
    config = test_train.settings(path, tmp_path / "run", decisions=32, **BY_REQUEST)
    server = tiny_server(limits=Limits(slots=4))
    run = session.train(config, lambda _: server, quiet())
    assert run.is_done and "ppo (this run)" in (run.path / "results.json").read_text()
    longer = replace(config.learning, decisions=48)
    again = session.train(
        replace(config, out=None, resume=run.path, learning=longer), lambda _: server, quiet()
    )
    assert load_model(again.checkpoint, ALGORITHMS["ppo"]).num_timesteps == 48


@pytest.mark.parametrize(
    ("learning", "says"),
    [
        ({"policy": "recurrent-ppo"}, "--policy recurrent-ppo: requests are observed by ppo and"),
        ({"policy": "dqn"}, "--policy dqn: requests"),
        ({"actions": "prices"}, "--actions prices: requests are observed"),
        ({"imitate": "slack-priced"}, "--imitate slack-priced: requests are observed"),
    ],
)
def test_where_requests_cannot_be_observed_it_is_said(learning: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        TrainConfig(Learning(**BY_REQUEST, **learning)).check()
    assert "\n" not in str(caught.value)


def test_a_run_keeps_what_it_observes(done: tuple[str, RunFolder]) -> None:
    name, run = done
    stated = (run.path / "environment.json").read_text(encoding="utf-8")
    for learning, says in (
        (Learning(policy=name), r"--observation aggregate: .* keeps its observation \(per-request"),
        (
            Learning(policy=name, actions="tiers", **BY_REQUEST),
            r"--actions tiers: .* \(sized-tiers",
        ),
    ):
        with pytest.raises(UserError, match=says):
            TrainConfig(learning, resume=run.path).check()
    TrainConfig(Learning(policy=name, **BY_REQUEST), resume=run.path).check()
    assert (run.path / "environment.json").read_text(encoding="utf-8") == stated
    assert environment_version("sized-tiers") != environment_version(
        "sized-tiers", observation="per-request"
    )
