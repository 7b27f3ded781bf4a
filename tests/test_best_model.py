"""Which model is kept as the best, when training gives up, and what held-out episodes come to."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.overload import OverloadRule
from engine.replay.server import ReplayServer
from policies.learned import LearnedController
from policies.novelty import novelty_of
from tests.test_resumed_training import rows, settings
from tests.tiny_recording import replay_server
from train import held_out, session
from train.algorithms.arguments import arguments_of
from train.algorithms.registry import ALGORITHMS
from train.config import ExportConfig, TrainConfig
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.export_run import export_run
from train.first_model import new_model
from train.held_out import VIOLATION_TOKENS, HeldOut, HeldOutFigures
from train.plateau import Plateau
from train.run_folder import RunFolder
from train.saved_model import load_model


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text("duration_s = 0.7\nrate_rps = 14.0\n", encoding="utf-8")
    return path


def train(config: TrainConfig) -> tuple[RunFolder, str]:
    console = Console(file=io.StringIO(), width=200)
    run = session.train(config, lambda _: replay_server(), console)
    return run, console.file.getvalue()  # type: ignore[attr-defined]


def scored(monkeypatch: pytest.MonkeyPatch, *scores: float) -> list[int]:
    """Held-out rewards come to these, one after the other; returns when they were made."""
    made: list[int] = []

    def serve(_: HeldOut, model: Any) -> HeldOutFigures:
        made.append(model.num_timesteps)
        return HeldOutFigures(0.0, 0.5, 1.0, 1.0, 0.0, reward=scores[len(made) - 1])

    monkeypatch.setattr(HeldOut, "serve", serve)
    return made


def test_the_best_judged_model_is_kept(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scored(monkeypatch, 1.0, 3.0, 2.0)
    run, printed = train(settings("ppo", workload, tmp_path / "run", held_out_every=32))
    assert made == [32, 64, 96]
    assert "exported as of decision 64, the best by held-out episodes" in printed
    assert load_model(run.best, ALGORITHMS["ppo"]).num_timesteps == 64
    lines = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    assert [line["eval/reward"] for line in lines if "eval/reward" in line] == [1.0, 3.0, 2.0]
    quiet = Console(quiet=True)
    for config, decisions in (
        (ExportConfig(run.path), 64),
        (ExportConfig(run.path, "best"), 64),
        (ExportConfig(run.path, "last"), 96),
    ):
        folder = export_run(config, quiet)
        assert LearnedController.load(folder).manifest.training["decisions"] == decisions


def test_a_plateau_ends_training_and_says_so(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scored(monkeypatch, 2.0, 1.0, 1.5, 9.0)
    config = settings(
        "ppo", workload, tmp_path / "run", held_out_every=32, patience=2, decisions=320
    )
    run, printed = train(config)
    assert made == [32, 64, 96] and run.is_done
    assert load_model(run.checkpoint, ALGORITHMS["ppo"]).num_timesteps == 96
    assert "better than that of decision 32 in 2 in a row (--patience), so training ends" in printed
    learning_on = replace(config.learning, patience=3)
    train(replace(config, out=None, resume=run.path, learning=replace(learning_on, decisions=128)))
    assert made == [32, 64, 96, 128]
    assert load_model(run.best, ALGORITHMS["ppo"]).num_timesteps == 128


def test_a_run_too_short_to_be_judged_keeps_its_last(workload: Path, tmp_path: Path) -> None:
    run, _ = train(settings("ppo", workload, tmp_path / "run", held_out_every=1000))
    assert load_model(run.best, ALGORITHMS["ppo"]).num_timesteps == 96


def test_judging_changes_nothing_about_training(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out, "EPISODES", 4)
    monkeypatch.setattr(held_out, "SECONDS", 1.0)
    runs = [
        train(settings("maskable-ppo", workload, tmp_path / f"{every}", held_out_every=every))[0]
        for every in (0, 32)
    ]
    models = [load_model(run.checkpoint, ALGORITHMS["maskable-ppo"]) for run in runs]
    for pair in zip(*(m.policy.state_dict().values() for m in models), strict=True):
        np.testing.assert_array_equal(*(tensor.numpy() for tensor in pair))
    assert rows(runs[0]) == rows(runs[1])
    judged = [json.loads(line) for line in runs[1].metrics.read_text("utf-8").splitlines()]
    assert sum("eval/attainment" in line for line in judged) == 3
    blind, seeing = (LearnedController.load(run.controller) for run in runs)
    assert novelty_of(blind) is None and novelty_of(seeing) is not None
    observed = seeing.manifest.training["observed"]
    assert observed["decisions"] > 0
    shutil.rmtree(runs[1].controller)  # as of a run that was killed before it exported
    folder = export_run(ExportConfig(runs[1].path), Console(quiet=True))
    assert LearnedController.load(folder).manifest.training["observed"] == observed


@pytest.mark.parametrize("single", [False, True])
def test_held_out_figures_are_those_of_the_episodes(
    single: bool, workload: Path, tmp_path: Path
) -> None:
    """Recurrent, so that memory is handed on; the same at every call."""
    server: ReplayServer = replay_server()
    if single:
        server.settings = replace(server.settings, overload=OverloadRule("reject"))
    config = settings("recurrent-ppo", workload, tmp_path / "run")
    arguments = arguments_of(config)
    draw = drawing(server, config.serving, served_workload(config.serving), held_out=True)
    env = environment(server, draw, config, arguments)
    model = new_model(env, config, arguments)
    test = HeldOut(env, 4)
    found = test.serve(model)
    assert found == test.serve(model)
    assert found.goodput_tps > 0 and found.valid_tps > 0 and 0 < found.attainment <= 1
    lost_tps = found.valid_tps - found.score
    assert (lost_tps > 0) is (found.violations > 0)
    if found.violations:
        span_s = VIOLATION_TOKENS * 4 * found.violations / lost_tps
        assert 0.5 < span_s / 4 < 5.0


def test_patience_counts_only_gains() -> None:
    plateau = Plateau(2)
    assert plateau.improves(1.0, 10) and not plateau.improves(float("nan"), 20)
    assert not plateau.is_reached
    again = Plateau(2)
    again.restore(plateau.state())
    assert not again.improves(1.0, 30) and again.is_reached and again.best_at == 10
    assert again.improves(1.5, 40) and not again.is_reached
    assert not Plateau(None).improves(-np.inf, 1) and not Plateau(None).is_reached


def test_patience_without_evaluations_is_refused(workload: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--patience 3: counts held-out evaluations"):
        settings("ppo", workload, tmp_path / "run", held_out_every=0, patience=3)
