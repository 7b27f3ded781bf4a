"""A run on replay that is killed and taken up ends with the weights of one that never was."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.overload import OverloadRule
from engine.replay.server import ReplayServer
from envs.serve import ServeEnv
from tests.tiny_recording import replay_server
from train import environments, learning, session
from train.algorithms.registry import ALGORITHMS
from train.config import Evaluation, Learning, Serving, TrainConfig
from train.interrupt import StopRequest
from train.run_folder import RunFolder
from train.saved_model import ARRAYS, load_model, load_state
from train.watched_fleet import WatchedFleet

NET = "policy_kwargs.net_arch=[8]"
ON_POLICY = ("n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2", "learning_rate=lin_0.01", NET)
OFF_POLICY = ("n_envs=4", "learning_starts=20", "batch_size=8", "buffer_size=80", NET)
SETS = {
    "ppo": ON_POLICY,
    "recurrent-ppo": (*ON_POLICY, "policy_kwargs.lstm_hidden_size=4"),
    "maskable-ppo": ON_POLICY,
    "dqn": (*OFF_POLICY, "exploration_fraction=0.9", "target_update_interval=16"),
    "sac": OFF_POLICY,
}
DECISIONS, KILLED_AT = 96, 13
"""Rollouts of 32 decisions, of 4 for a replay buffer; which step of all engines never returns."""


class Killed(BaseException):
    """What a kill -9 leaves: nothing behind it runs."""


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text("duration_s = 0.7\nrate_rps = 14.0\n", encoding="utf-8")
    return path


def settings(name: str, workload: Path, out: Path, **learning: Any) -> TrainConfig:
    values: dict[str, Any] = {"minutes": 60.0, "decisions": DECISIONS, "set": SETS[name]}
    values |= {"policy": name, "decide_every": 2, "held_out_every": 0, **learning}
    config = TrainConfig(
        learning=Learning(**values),
        serving=Serving(workload=str(workload), max_tokens=16),
        evaluation=Evaluation(0),
        out=out,
    )
    config.check()
    return config


served = cache(replay_server)


def train(config: TrainConfig, server: Callable[[], ReplayServer] = served) -> RunFolder:
    return session.train(config, lambda _: server(), Console(file=io.StringIO()))


def saving(config: TrainConfig) -> TrainConfig:
    """Whenever it can be done."""
    return replace(config, learning=replace(config.learning, save_every_s=0.0))


def resumed(config: TrainConfig) -> TrainConfig:
    return replace(config, out=None, resume=config.out)


def kill(monkeypatch: pytest.MonkeyPatch, kind: type, step: str, at: int = KILLED_AT) -> None:
    """Let the `at`th step of all engines never return."""
    went, steps = getattr(kind, step), [0]

    def stepped(self: Any, *args: Any) -> Any:
        steps[0] += 1
        if steps[0] == at:
            raise Killed
        return went(self, *args)

    monkeypatch.setattr(kind, step, stepped)


def killed_and_resumed(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    with monkeypatch.context() as patch:
        kill(patch, WatchedFleet, "step_wait")
        with pytest.raises(Killed):
            train(saving(config))
    assert config.out is not None and not RunFolder(config.out).is_done
    return train(resumed(config))


def content(run: RunFolder, name: str) -> list[np.ndarray]:
    """All that training came to: weights, optimizer, experience."""
    model: Any = load_model(run.checkpoint, ALGORITHMS[name])
    found = [t.numpy() for of in model.get_parameters().values() for t in tensors(of)]
    buffer = np.load(io.BytesIO(member(run, "experience.npz"))) if "buffer" in dir(model) else {}
    return found + [buffer[key] for key in (*ARRAYS, "pos") if key in buffer]


def member(run: RunFolder, name: str) -> bytes:
    import zipfile

    with zipfile.ZipFile(run.checkpoint) as archive:
        return archive.read(name)


def tensors(of: Any) -> list[Any]:
    if isinstance(of, dict):
        return [t for value in of.values() for t in tensors(value)]
    return [of] if hasattr(of, "numpy") else []


def rows(run: RunFolder) -> list[list[str]]:
    """Of monitor.csv, without the time that it took."""
    lines = run.monitor.read_text(encoding="utf-8").splitlines()
    assert set(json.loads(lines[0].removeprefix("#"))) == {"t_start", "env_id"}
    assert lines[1] == "r,l,t,attainment,goodput_tps"
    return [[*row[:2], *row[3:]] for line in lines[2:] for row in [line.split(",")]]


@pytest.mark.parametrize(("name", "actions"), [*((n, None) for n in SETS), ("ppo", "tiers")])
def test_the_weights_are_those_of_a_run_that_was_never_killed(
    name: str,
    actions: str | None,
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = train(settings(name, workload, tmp_path / "whole", actions=actions))
    config = settings(name, workload, tmp_path / "again", actions=actions)
    again = killed_and_resumed(config, monkeypatch)
    ours, theirs = content(again, name), content(whole, name)
    assert len(ours) == len(theirs) > 4
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert rows(again) == rows(whole)
    if actions == "tiers":  # every slot is held, so that episodes are short and some end
        assert len(rows(whole)) > 1
    assert load_model(again.checkpoint, ALGORITHMS[name]).updates > 1


def test_without_its_state_a_resumed_run_ends_elsewhere(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can fail."""
    whole = train(settings("ppo", workload, tmp_path / "whole"))
    monkeypatch.setattr("train.training_state._set_generators", lambda *_: None)
    again = killed_and_resumed(settings("ppo", workload, tmp_path / "again"), monkeypatch)
    pairs = zip(content(again, "ppo"), content(whole, "ppo"), strict=True)
    assert not all(np.array_equal(mine, other) for mine, other in pairs)


def refusing_server() -> ReplayServer:
    """One that no fleet serves, so environments are single ones."""
    server = replay_server()
    rule = OverloadRule("reject")
    server.settings = replace(server.settings, overload=rule)
    return server


def test_a_single_environment_goes_on_as_well(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(settings("recurrent-ppo", workload, tmp_path / "whole"), refusing_server)
    config = settings("recurrent-ppo", workload, tmp_path / "again")
    with monkeypatch.context() as patch:
        kill(patch, ServeEnv, "step", at=45)
        with pytest.raises(Killed):
            train(saving(config), refusing_server)
    again = train(resumed(config), refusing_server)
    for pair in zip(content(again, "recurrent-ppo"), content(whole, "recurrent-ppo"), strict=True):
        np.testing.assert_array_equal(*pair)
    assert rows(again) == rows(whole) and rows(whole)


def test_a_run_killed_before_it_was_saved_begins_anew(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(settings("ppo", workload, tmp_path / "whole"))
    monkeypatch.setattr(learning.Checkpoints, "_save_if_due", lambda _: None)
    again = killed_and_resumed(settings("ppo", workload, tmp_path / "again"), monkeypatch)
    for pair in zip(content(again, "ppo"), content(whole, "ppo"), strict=True):
        np.testing.assert_array_equal(*pair)
    assert rows(again) == rows(whole)


class StopAtOnce(StopRequest):
    """A signal that came before training began."""

    def __init__(self) -> None:
        super().__init__()
        self.requested = True


def test_a_stop_ends_between_rollouts_and_more_decisions_go_on_from_there(
    workload: Path, tmp_path: Path
) -> None:
    out = Console(file=io.StringIO(), width=200)
    config = settings("ppo", workload, tmp_path / "run")
    run = session.train(config, lambda _: replay_server(), out, StopAtOnce())
    assert load_model(run.checkpoint, ALGORITHMS["ppo"]).num_timesteps == 0
    assert f"python train.py --resume {run.path}" in out.file.getvalue()  # type: ignore[attr-defined]
    whole = train(settings("ppo", workload, tmp_path / "whole"))
    train(resumed(config))
    for pair in zip(content(run, "ppo"), content(whole, "ppo"), strict=True):
        np.testing.assert_array_equal(*pair)
    more = replace(resumed(config), learning=replace(config.learning, decisions=2 * DECISIONS))
    assert load_model(train(more).checkpoint, ALGORITHMS["ppo"]).num_timesteps == 2 * DECISIONS


def test_what_was_saved_on_another_recording_is_refused(workload: Path, tmp_path: Path) -> None:
    config = settings("ppo", workload, tmp_path / "run")
    run = train(config)
    other = replace(config.learning, decisions=2 * DECISIONS)
    with pytest.raises(UserError, match=r"--resume .*run: the snapshot was taken with another"):
        train(replace(resumed(config), learning=other), lambda: replay_server(power_cap_watts=20.0))
    assert load_state(run.checkpoint).kind == "Training"
    with pytest.raises(UserError, match="holds no state of its episodes"):
        load_state(run.best)


def test_rows_and_lines_are_tables_in_the_end(workload: Path, tmp_path: Path) -> None:
    run = train(settings("ppo", workload, tmp_path / "run"))
    table = run.metrics_csv.read_text(encoding="utf-8").splitlines()
    lines = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    header = table[0].split(",")
    assert header[:2] == ["step", "time"] and len(table) == len(lines) + 1
    steps = [row["step"] for row in lines]
    assert [int(row.split(",")[0]) for row in table[1:]] == steps
    loss = header.index("train/loss")
    assert {row.split(",")[loss] for row in table[1:]} == {
        str(row.get("train/loss", "")) for row in lines
    }


def test_a_reward_that_is_no_number_ends_the_run_and_saves_it(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = environments.ServeFleet._serve
    steps = [0]

    def broken(self: Any, *args: Any) -> Any:
        told = served(self, *args)
        steps[0] += 1
        if steps[0] == 15:
            told.parts[3, 1] = np.nan
            self._name_what_is_not_finite(told)
        return told

    config = settings("ppo", workload, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(environments.ServeFleet, "_serve", broken)
        with pytest.raises(UserError, match=r"reward part tail is nan.*failed\.zip, and --resume"):
            train(saving(config))
    run = RunFolder(tmp_path / "run")
    assert load_model(run.failed, ALGORITHMS["ppo"]).num_timesteps > 32
    assert load_model(run.checkpoint, ALGORITHMS["ppo"]).num_timesteps == 32
    assert train(resumed(config)).is_done


def test_a_run_of_another_environment_is_refused(workload: Path, tmp_path: Path) -> None:
    config = settings("ppo", workload, tmp_path / "run")
    run = train(config)
    path = run.path / "environment.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**stated, "features": "f" * 64}), encoding="utf-8")
    from train.run_folder import settings_files

    for refused in (resumed(config), replace(config, config=run.config, out=None)):
        with pytest.raises(UserError, match=r"another version of the environment \(features: fff"):
            settings_files(refused)
