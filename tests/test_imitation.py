"""Behaviour cloning: what is recorded, that it is fitted, and that without fitting it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.protocol import Limits, uniform_plan
from policies.actions import ActionTable
from policies.features import feature_table, observe
from policies.learned import LearnedController
from policies.registry import make
from policies.shifts import Shifts
from tests.test_algorithms import SHORT, WORKLOAD, quiet
from tests.test_features import make_view
from tests.tiny_recording import CLASSES, replay_server
from train import session
from train.algorithms.arguments import arguments_of
from train.algorithms.base import Learner
from train.algorithms.registry import ALGORITHMS
from train.cloning import STRETCH, clone, fit_critic, returns
from train.config import Evaluation, Learning, Serving, TrainConfig
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.first_model import new_model
from train.imitation import Recording, record, tiers_of
from train.saved_model import load_model

TABLE = ActionTable(CLASSES)
CHAIN = (3, 0, 1, 0)  # tiers of depth 3, width 1, 4 nodes (3 is none), margin 1
TIERED = ("ppo", "a2c", "maskable-ppo", "recurrent-ppo")


@pytest.fixture(autouse=True)
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Critics of few decisions, and one thread."""
    monkeypatch.setattr("train.cloning.MOST_CRITIC_DECISIONS", 512)
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return path


def settings(workload: Path, policy: str = "ppo", **learning: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "decisions": 64, "decide_every": 2, "set": ("n_envs=4", *SHORT[policy]),
        "imitate": "chain(3)", "imitate_decisions": 640, "held_out_every": 0,
    }  # fmt: skip
    return TrainConfig(
        learning=Learning(policy=policy, **(values | learning)),
        serving=Serving(workload=str(workload), max_tokens=16),
        evaluation=Evaluation(0),
    )


@cache
def recorded(workload: Path, spec: str, decisions: int = 640, seed: int = 0) -> Recording:
    config = settings(workload)
    server = replay_server()
    draw = drawing(server, config.serving, served_workload(config.serving))
    return record(server, draw, make(spec), TABLE, 2, decisions, np.random.default_rng(seed))


def untrained(config: TrainConfig) -> Learner:
    server, arguments = replay_server(), arguments_of(config)
    draw = drawing(server, config.serving, served_workload(config.serving))
    return new_model(environment(server, draw, config, arguments), config, arguments)


# -- the recording -------------------------------------------------------------------------------


def test_plans_become_tiers_by_class() -> None:
    view = make_view(np.random.default_rng(0), limits=Limits(slots=4, max_nodes=24))
    view = view._replace(active=np.array([1, 1, 1, 0], bool), slo_class=np.array([0, 0, 1, 2]))
    plan = uniform_plan(view.limits, 3, 1, 3)
    tiers, told = tiers_of(plan, view, TABLE)
    assert tiers.reshape(3, 4).tolist() == [list(CHAIN), list(CHAIN), [0, 0, 0, 0]]
    assert told.tolist() == [True, True, False]
    # One of two drafts: the median depth of 0 and 3 is nearest to 1, the rest is the drafter's own.
    plan = plan._replace(
        depth=np.array([0, 3, 0, 9]), width=np.array([1, 8, 8, 9]), nodes=np.array([0, 24, 24, 9])
    )
    tiers, _ = tiers_of(plan, view, TABLE)
    # 24 nodes are nearer to 32, which is above the limit.
    assert tiers.reshape(3, 4).tolist() == [[2, 3, 3, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_observations_are_those_of_the_trainee(workload: Path) -> None:
    """Among them the plan before, by its tiers: nothing at first, then the chain."""
    recording = recorded(workload, "chain(3)")
    assert recording.observation.shape[0] == len(recording.tiers) == 640
    names = [f.name for f in feature_table(CLASSES)]
    depth = recording.observation[:, names.index("coding.previous_depth")]
    first = recording.begins
    assert first[0] and first.sum() > 1 and (depth[first] == 0).all()
    held = np.roll(recording.told[:, 0], 1) & ~first
    assert held.any() and (depth[held] == np.float32(3 / Limits().max_depth)).all()
    chosen = recording.tiers.reshape(-1, 3, 4)
    assert (chosen[recording.told] == CHAIN).all() and (chosen[~recording.told] == 0).all()
    assert np.take_along_axis(split(recording.legal), chosen.reshape(-1, 12, 1), 2).all()


def split(legal: np.ndarray) -> np.ndarray:
    """[N, D, K] with False where a dimension has no such tier."""
    nvec = TABLE.nvec
    found = np.zeros((len(legal), len(nvec), nvec.max()), bool)
    for d, (at, n) in enumerate(zip(np.cumsum(nvec) - nvec, nvec, strict=True)):
        found[:, d, :n] = legal[:, at : at + n]
    return found


def test_the_first_observation_is_the_environments(workload: Path) -> None:
    config = settings(workload)
    server = replay_server()
    draw = drawing(server, config.serving, served_workload(config.serving))
    view = server.engine(draw(np.random.default_rng(0))).next_decision()
    assert view is not None
    expected = observe(view, TABLE.off(), Shifts(3))
    np.testing.assert_array_equal(recorded(workload, "chain(3)").observation[0], expected)


def test_the_controller_serves_with_its_own_nodes(workload: Path) -> None:
    """Slack-priced selects nodes, which a recorder without `select` would take from it."""
    tiers = recorded(workload, "slack-priced", 96).tiers
    assert len(np.unique(tiers, axis=0)) > 1


# -- the fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", TIERED)
def test_a_chain_is_cloned_and_without_fitting_is_not(policy: str, workload: Path) -> None:
    recording, model = recorded(workload, "chain(3)"), untrained(settings(workload, policy))
    none = clone(model, recording, np.random.default_rng(0), epochs=0)
    assert none.epochs == 0 and none.before < 0.5 and max(none.by_class.values()) < 0.5
    found = clone(model, recording, np.random.default_rng(0))
    assert set(found.by_class) == set(CLASSES) and found.decisions >= STRETCH
    assert min(found.by_class.values()) >= 0.95 and found.loss < none.loss
    assert found.before == none.before


def test_the_seed_decides(workload: Path) -> None:
    recording = recorded(workload, "chain(3)")
    fitted = []
    for seed in (0, 0, 1):
        model = untrained(settings(workload))
        clone(model, recording, np.random.default_rng(seed), epochs=3)
        fit_critic(model, np.random.default_rng(seed), 0.1)
        fitted.append(torch.cat([p.detach().flatten() for p in model.policy.parameters()]))
    assert torch.equal(fitted[0], fitted[1]) and not torch.equal(fitted[0], fitted[2])


def test_returns_discount_by_time_and_go_on_behind_the_end() -> None:
    seconds = np.array([[1.0, 0.5], [2.0, 0.5]])
    rewards = 3.0 * seconds  # 3 a second for ever is worth 3 / −ln γ wherever one stands
    gamma = 0.9
    assert returns(rewards, seconds, gamma) == pytest.approx(3.0 / -np.log(gamma), rel=0.1)
    late = returns(np.array([[0.0], [1.0]]), np.array([[2.0], [1.0]]), gamma)
    behind = 1.0 / 3.0 / -np.log(gamma)
    assert late.ravel() == pytest.approx([0.81 * (1 + 0.9 * behind), 1 + 0.9 * behind])


@pytest.mark.parametrize("policy", ["ppo", "recurrent-ppo", "maskable-ppo"])
def test_the_critic_comes_nearer_and_the_actor_stays(policy: str, workload: Path) -> None:
    model = untrained(settings(workload, policy))
    acting = {n: p.clone() for n, p in model.policy.named_parameters() if "value" not in n}
    first = fit_critic(model, np.random.default_rng(0), 0.05)
    assert fit_critic(model, np.random.default_rng(0), 0.05) < first
    for name, before in acting.items():
        if "critic" not in name:
            assert torch.equal(dict(model.policy.named_parameters())[name], before), name


# -- the whole run, and what is refused ----------------------------------------------------------


def test_a_run_begins_as_the_controller(workload: Path, tmp_path: Path) -> None:
    """With no time to train, what comes out is the clone, and it is no untrained policy."""
    config = settings(workload, set=("n_envs=4", *SHORT["ppo"], "learning_rate=1e-9"))
    config = replace(config, out=tmp_path / "run")
    config.check()
    console = quiet()
    run = session.train(config, lambda _: replay_server(), console)
    told = json.loads((run.path / "imitation.json").read_text())
    assert told["controller"] == "chain(3)" and min(told["by_class"].values()) >= 0.95
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "imitates chain(3): the same plan on" in printed and "coding 100 %" in printed
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert any("imitation/agreement/chat" in row for row in rows)
    controller = LearnedController.load(run.controller)
    recording = recorded(workload, "chain(3)")
    controller.reset(Limits())
    actions = np.stack([controller.network.action(row) for row in recording.observation[:64]])
    assert (actions.reshape(-1, 3, 4)[recording.told[:64]] == CHAIN).mean() > 0.95
    assert load_model(run.checkpoint, ALGORITHMS["ppo"]).imitated == "chain(3)"


@pytest.mark.parametrize(
    ("learning", "serving", "says"),
    [
        ({"policy": "dqn"}, {}, "dqn does not choose tiers"),
        ({"policy": "sac"}, {}, "sac does not choose tiers"),
        ({"actions": "prices"}, {}, "--actions prices does not choose tiers"),
        ({"imitate": "chian"}, {}, "did you mean chain"),
        ({"imitate_decisions": 10}, {}, "expected at least 256"),
        ({}, {"backend": "live"}, "on replay alone"),
    ],
)
def test_what_cannot_be_imitated(
    learning: dict[str, Any], serving: dict[str, Any], says: str
) -> None:
    config = TrainConfig(
        learning=Learning(**{"imitate": "chain(3)", **learning}), serving=Serving(**serving)
    )
    with pytest.raises(UserError) as caught:
        config.check()
    assert says in str(caught.value) and "\n" not in str(caught.value)
