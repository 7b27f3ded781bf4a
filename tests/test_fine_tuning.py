"""`--fine-tune-live`: a policy from replay learns on live, and what was lost there is said."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from engine.errors import UserError
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.serving import LiveServer
from engine.workload import WorkloadConfig
from envs.serve import ServeEnv
from policies.learned import LearnedController
from tests.test_resumed_training import Killed, kill
from tests.tiny_recording import live_server, recorded, replay_server
from train import export_run, fine_tuning, session
from train.algorithms.arguments import arguments_of, fine_tuning_arguments
from train.algorithms.registry import ALGORITHMS
from train.config import Evaluation, ExportConfig, Learning, Serving, TrainConfig
from train.interrupt import StopRequest
from train.run_folder import RunFolder
from train.saved_model import load_model
from train.window import Watched

NET = "policy_kwargs.net_arch=[8]"
PPO = ("n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2", "learning_rate=lin_0.01", NET)
DQN = ("n_envs=4", "learning_starts=20", "batch_size=8", "buffer_size=200", NET)
TRAINED, TUNED = 64, 24


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text("duration_s = 0.7\nrate_rps = 14.0\n", encoding="utf-8")
    return path


def settings(workload: Path, out: Path | None, seeds: int = 0, **learning: Any) -> TrainConfig:
    values: dict[str, Any] = {"minutes": 60.0, "decisions": TRAINED, "set": PPO}
    values |= {"decide_every": 2, "held_out_every": 0, "fine_tune_live": TUNED, **learning}
    config = TrainConfig(
        learning=Learning(**values),
        serving=Serving(workload=str(workload), max_tokens=16),
        evaluation=Evaluation(seeds, 2.4, ("autoregressive",)),
        out=out,
    )
    config.check()
    return config


def servers(serving: Serving) -> ReplayServer | LiveServer:
    return replay_server() if serving.backend == "replay" else live_server()


def train(config: TrainConfig, stop: StopRequest | None = None) -> tuple[RunFolder, str]:
    console = Console(file=io.StringIO(), width=200)
    run = session.train(config, servers, console, stop)
    return run, console.file.getvalue()  # type: ignore[attr-defined]


def models(run: RunFolder, name: str = "ppo") -> tuple[Any, Any]:
    """From replay, and from live."""
    kind = ALGORITHMS[name]
    return load_model(run.checkpoint, kind), load_model(run.fine_tuned, kind)


def weights(model: Any) -> list[np.ndarray]:
    return [tensor.numpy().copy() for tensor in model.policy.state_dict().values()]


def test_a_run_goes_on_live_and_says_what_was_lost(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    served: dict[bool, set[int]] = {True: set(), False: set()}
    model_of, engine_of, following = fine_tuning._model, LiveServer.engine, [False]

    def beginning(*given: Any) -> Any:
        model, following[0] = model_of(*given), True
        moments = deepcopy(model.policy.optimizer.state_dict()["state"])
        begun.append((model.num_timesteps, weights(model), moments))
        return model

    def engine(self: LiveServer, requests: Any, *given: Any, **options: Any) -> Any:
        texts = {r.text for r in requests if isinstance(r, RecordedRequest)}
        served[compared[0]].update(texts)
        return engine_of(self, requests, *given, **options)

    compared, compare = [False], fine_tuning.compare

    def comparing(*given: Any) -> Any:
        compared[0] = True
        return compare(*given)

    monkeypatch.setattr(fine_tuning, "_model", beginning)
    monkeypatch.setattr(fine_tuning, "compare", comparing)
    monkeypatch.setattr(LiveServer, "engine", engine)
    run, printed = train(settings(workload, tmp_path / "run", seeds=2))
    replayed, tuned = models(run)
    assert (replayed.num_timesteps, tuned.num_timesteps) == (TRAINED, TRAINED + TUNED)
    assert (replayed.tuned_from, tuned.tuned_from) == (None, TRAINED)
    assert tuned.updates == replayed.updates + TUNED // 8
    assert f"{TUNED} decisions and 3 updates live in" in printed

    ((first, before, moments),) = begun  # it goes on: same weights, same moments
    assert first == TRAINED
    for mine, theirs in zip(before, weights(replayed), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    kept = replayed.policy.optimizer.state_dict()["state"]
    assert kept and all(torch.equal(moments[key]["exp_avg"], kept[key]["exp_avg"]) for key in kept)
    pairs = zip(weights(tuned), before, strict=True)
    assert not all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    held_out = set(np.flatnonzero(recorded()[1].held_out).tolist())
    assert served[True] and served[True] <= held_out
    assert served[False] and not served[False] & held_out

    results = json.loads((run.path / "results.json").read_text())
    assert "ppo (this run)" in results["controllers"]  # on replay, beside the baselines
    found = results["fine_tuning"]
    assert (found["decisions"], found["updates"]) == (TUNED, 3)
    assert list(found["live"]["controllers"]) == ["ppo before", "ppo fine-tuned (this run)"]
    assert "modelled time" not in found["live"]["title"]
    assert len(found["transfer"]["gaps"]) == 4 and len(found["transfer"]["gains"]) == 2
    verdict = found["transfer"]["verdict"]
    card = (run.controller / "card.md").read_text()
    assert verdict in card and f"{TUNED} decisions, 3 updates on target tiny" in card
    assert verdict in (run.path / "results.md").read_text()
    assert verdict in printed
    shipped = LearnedController.load(run.controller).manifest.training
    assert shipped["decisions"] == TRAINED + TUNED and shipped["fine_tuned"]["verdict"]
    rows = [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()]
    assert rows == sorted(rows) and rows[-1] == TRAINED + TUNED
    assert run.is_done and "--backend live" in printed

    config = ExportConfig(run.path, out=tmp_path / "again", check=True)
    folder = export_run.export_run(config, Console(file=io.StringIO()))
    name = "weights.safetensors"
    assert (folder / name).read_bytes() == (run.controller / name).read_bytes()


def test_a_run_that_was_killed_while_it_went_on_goes_on_from_there(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(workload, tmp_path / "run", save_every_s=0.0)
    with monkeypatch.context() as patch:
        kill(patch, Watched, "step", at=13)
        with pytest.raises(Killed):
            train(config)
    killed = models(RunFolder(tmp_path / "run"))[1]
    assert (killed.num_timesteps, killed.updates) == (TRAINED + 12, 3)  # the third is live
    live_steps = [0]
    step = ServeEnv.step

    def counting(self: ServeEnv, action: Any) -> Any:
        live_steps[0] += 1
        return step(self, action)

    monkeypatch.setattr(ServeEnv, "step", counting)
    resumed = replace(config, out=None, resume=config.out)
    run, _ = train(resumed)
    assert models(run)[1].num_timesteps == TRAINED + 12 + 16  # whole rollouts of 8
    assert live_steps == [16] and run.is_done
    train(resumed)  # all is done
    assert live_steps == [16]

    longer = replace(resumed, learning=replace(resumed.learning, decisions=96))
    run, _ = train(longer)  # more on replay: what went on from less is out of date
    replayed, tuned = models(run)
    assert (replayed.num_timesteps, tuned.tuned_from) == (96, 96)
    assert live_steps == [16 + TUNED]
    run.fine_tuned.write_bytes(run.checkpoint.read_bytes())  # of no fine-tuning
    assert fine_tuning.latest_model(run, replayed, ALGORITHMS["ppo"]) is replayed


class StopOnLive(StopRequest):
    """A Ctrl-C in the midst of fine-tuning."""

    steps = 0

    @property  # type: ignore[override]
    def requested(self) -> bool:
        return StopOnLive.steps >= 5

    @requested.setter
    def requested(self, value: bool) -> None:
        pass


def test_a_stop_while_fine_tuning_saves_and_says_how_to_go_on(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Watched.step

    def counting(self: Watched, action: Any) -> Any:
        StopOnLive.steps += 1
        return step(self, action)

    monkeypatch.setattr(Watched, "step", counting)
    run, printed = train(settings(workload, tmp_path / "run"), StopOnLive())
    assert not run.is_done and f"--resume {run.path}" in printed
    assert (run.path / "unfinished").read_text() == "stopped while fine-tuning\n"
    assert models(run)[1].num_timesteps == TRAINED + 5


def test_a_replay_buffer_begins_empty_and_exploration_stays(workload: Path, tmp_path: Path) -> None:
    run, printed = train(settings(workload, tmp_path / "run", policy="dqn", set=DQN))
    replayed, tuned = models(run, "dqn")
    assert tuned.exploration_rate == pytest.approx(tuned.exploration_final_eps)
    # Eight transitions make a batch; every decision from then on is an update.
    assert tuned.updates - replayed.updates == TUNED - 8 + 1
    assert "updates live" in printed


def test_loads_are_multiples_of_the_live_capacity() -> None:
    replay, live = replay_server(), live_server()
    work = WorkloadConfig(name="tiny", duration_s=1.0, load=0.5, max_tokens=16)
    drawing = fine_tuning.recorded(replay, live, work, held_out=True)
    assert drawing.capacity_rps == live.capacity_of(drawing.asked) > 0
    assert drawing.held_out


def test_arguments_are_the_runs_on_one_live_engine(workload: Path) -> None:
    config = settings(workload, None, set=("n_steps=48", "learning_rate=3e-4", "n_envs=8"))
    tuned = fine_tuning_arguments(arguments_of(config), config)
    assert tuned.n_envs == 1 and tuned.values["batch_size"] == 48  # 32 does not divide it
    assert tuned.values["learning_rate"] == 3e-4
    config = settings(workload, None, policy="dqn", set=("batch_size=16",))
    tuned = fine_tuning_arguments(arguments_of(config), config)
    assert tuned.values["batch_size"] == 16 and tuned.values["learning_starts"] == 256
    assert tuned.values["exploration_initial_eps"] == tuned.values["exploration_final_eps"]


@pytest.mark.parametrize(
    ("serving", "decisions", "told"),
    [
        ({"backend": "live"}, 8, "--fine-tune-live 8 --backend live: goes on on live networks"),
        ({}, 0, "--fine-tune-live 0: expected a number of at least 1"),
        ({"prompts": Path("mine.jsonl")}, 8, "--prompts mine.jsonl: has no meaning"),
    ],
)
def test_where_it_has_no_meaning_is_one_sentence(
    serving: dict[str, Any], decisions: int, told: str
) -> None:
    config = TrainConfig(Learning(fine_tune_live=decisions), Serving(**serving))
    with pytest.raises(UserError) as caught:
        config.check()
    assert str(caught.value).startswith(told) and "\n" not in str(caught.value)


def test_networks_of_the_recording_may_be_chosen() -> None:
    TrainConfig(Learning(fine_tune_live=8), Serving(threads=1, dtype="float32")).check()
    with pytest.raises(UserError, match="--dtype float32: has no meaning"):
        TrainConfig(Learning(), Serving(threads=1, dtype="float32")).check()


def absent(serving: Serving) -> Any:
    if serving.backend == "live":
        raise UserError("The model 'tiny' is not known.")
    return replay_server()


def of_network(network: str) -> Any:
    def load(serving: Serving) -> Any:
        if serving.backend == "live":
            return live_server()
        server = replay_server()
        server.manifest = replace(server.manifest, network=network)
        return server

    return load


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (
            absent,
            r"--fine-tune-live 24: what was recorded, tiny with eagle3, .*'tiny' is not known",
        ),
        (of_network("synthetic"), r"the acceptance of tiny is synthetic"),
        (of_network("576 wide"), r"the recording is of eagle3 \(576 wide\), live would be"),
    ],
)
def test_a_model_that_is_not_at_hand_is_told_before_training(
    load: Any, told: str, workload: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        session.train(settings(workload, tmp_path / "run"), load, Console(file=io.StringIO()))
    assert not (tmp_path / "run").exists()
