"""Tiers with a choice of how many requests may run, in training: the start, and a whole run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import UserError
from policies.action_codec import TierCodec
from policies.actions import sized_tiers
from policies.learned import LearnedController
from tests.test_algorithms import SHORT, quiet, settings, workload  # noqa: F401  (a fixture)
from tests.tiny_recording import CLASSES, asked, replay_server
from train import session
from train.agreement import compare
from train.algorithms.arguments import arguments_of
from train.config import TrainConfig
from train.environment_version import environment_version
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.first_model import new_model
from train.saved_model import load_model
from train.watched_fleet import WatchedFleet

TABLE = sized_tiers(CLASSES)


def sized(name: str, workload: Path, **values: Any) -> TrainConfig:  # noqa: F811
    """A short run on a fleet of four."""
    return settings(name, workload, **{"actions": "sized-tiers", **values})


@pytest.mark.parametrize("name", ["ppo", "maskable-ppo", "sac", "dqn", "qrdqn"])
def test_an_untrained_policy_lets_few_slots_be_held(name: str, workload: Path) -> None:  # noqa: F811
    config = sized(name, workload)
    config.check()
    server, arguments = replay_server(), arguments_of(config)
    draw = drawing(server, config.serving, served_workload(config.serving))
    env = environment(server, draw, config, arguments)
    assert isinstance(env, WatchedFleet) and env.codec.table == TABLE
    model = new_model(env, config, arguments)
    rows = np.random.default_rng(0).uniform(0, 1, (4, 3, len(env.serving.features)))
    legal = np.ones((4, 3, int(TABLE.nvec.sum())), np.bool_)
    greedy = model.greedy(rows.astype(np.float32), legal if name == "maskable-ppo" else None)
    chosen = env.codec.decode(greedy[0])
    if isinstance(env.codec, TierCodec):
        assert (chosen == 0).all()
    else:  # these begin among the small tiers, not at the smallest
        assert (chosen.mean(axis=0) <= (TABLE.nvec - 1) / 2).all()


def test_plans_that_are_imitated_do_not_have_it(workload: Path) -> None:  # noqa: F811
    with pytest.raises(UserError, match="--actions sized-tiers does not choose tiers"):
        sized("ppo", workload, imitate="chain").check()


def test_a_run_goes_through(workload: Path, tmp_path: Path) -> None:  # noqa: F811
    config = replace(sized("ppo", workload, decisions=64, held_out_every=0), out=tmp_path / "run")
    config.check()
    run = session.train(config, lambda _: replay_server(), quiet())
    controller = LearnedController.load(run.controller)
    assert controller.manifest.actions == TABLE
    model = load_model(run.checkpoint, arguments_of(config).algorithm)
    assert compare(model, controller, np.random.default_rng(0)).holds
    assert len(replay_server().engine(asked(4, 8)).serve(controller)) == 4
    card = (run.controller / "card.md").read_text(encoding="utf-8")
    assert "nodes by SLO class and how many requests may run, every 2 iterations" in card
    made_in = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    assert made_in == environment_version("sized-tiers")
    rows = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    assert any("action/running" in row for row in rows)


def test_each_kind_of_actions_is_an_environment_of_its_own() -> None:
    found = {kind: environment_version(kind) for kind in ("tiers", "sized-tiers", "prices")}
    assert len({version["actions"] for version in found.values()}) == 3
    assert len({version["features"] for version in found.values()}) == 1
