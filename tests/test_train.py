"""Training end to end on a tiny live engine: a complete run, resuming, the stop, the export."""

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.protocol import Limits
from engine.serving import LiveServer
from engine.tiny import tiny_server
from policies.learned import LearnedController
from train import export_run, run_folder, session
from train.agreement import compare, policy_outputs
from train.algorithms.arguments import arguments_of
from train.algorithms.base import Learner
from train.algorithms.registry import ALGORITHMS
from train.command_line import CrashError
from train.config import Evaluation, ExportConfig, Learning, Serving, TrainConfig
from train.environments import environment
from train.evaluation import drawing, served_workload
from train.export import network_of, onnx_logits
from train.first_model import new_model
from train.interrupt import StopRequest
from train.run_folder import RunFolder
from train.saved_model import load_model

ROOT = Path(__file__).resolve().parents[1]
PPO = ALGORITHMS["ppo"]
SHORT = ("n_steps=16", "batch_size=8", "n_epochs=2")
WORKLOAD = """
duration_s = 2.0
load = 0.5
prompt_tokens = 24
truncate = true
"""


@pytest.fixture(scope="module")
def server() -> LiveServer:
    """Tiny networks behind the real engine."""
    return tiny_server(limits=Limits(slots=4))


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return path


def settings(workload: Path, out: Path, **learning: Any) -> TrainConfig:
    """Training of a known number of decisions, however fast the machine is."""
    values: dict[str, Any] = {"minutes": 5.0, "decisions": 48, "decide_every": 2, "set": SHORT}
    return TrainConfig(
        learning=Learning(**(values | learning)),
        serving=Serving(backend="live", workload=str(workload), max_tokens=8),
        evaluation=Evaluation(2, 1.2, ("autoregressive", "eagle3(3,4,8)")),
        out=out,
    )


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


def printed_on(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def done(
    server: LiveServer, workload: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunFolder, str]:
    """A run of some seconds that went through, and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "first"
    console = quiet()
    run = session.train(settings(workload, out), lambda _: server, console)
    return run, printed_on(console)


def lines(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def test_run_folder_is_complete(done: tuple[RunFolder, str]) -> None:
    run, printed = done
    present = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
    assert {
        *("config.toml", "command.txt", "versions.json", "metrics.jsonl", "results.json", "DONE"),
        *("checkpoints/last.zip", "controller/weights.safetensors", "controller/manifest.json"),
        *("controller/card.md", "results.md", "best/model.zip"),
    } <= present
    assert "unfinished" not in present
    assert any(name.startswith("events.out.tfevents") for name in present)
    assert not [name for name in present if name.endswith(".tmp")]
    assert run.is_done
    stamp = json.loads((run.path / "versions.json").read_text())
    assert stamp["run_format"] == run_folder.RunFolder.KIND.format
    assert stamp["hardware"]["cores"] >= 1
    assert f"tensorboard --logdir {run.path}" in printed
    assert "2 paired seeds" in printed


def test_figures_are_logged_by_class_and_rising_step(done: tuple[RunFolder, str]) -> None:
    rows = lines(done[0])
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps) and steps[-1] > 16
    seen = set().union(*rows)
    assert {"slo/goodput_tps", "action/depth/coding", "reward/valid", "train/loss"} <= seen
    assert any(key.startswith("slo/attainment/") for key in seen)


def test_results_compare_on_the_same_seeds(done: tuple[RunFolder, str]) -> None:
    results = json.loads((done[0].path / "results.json").read_text())
    assert list(results["controllers"]) == ["ppo (this run)", "autoregressive", "eagle3(3,4,8)"]
    for row in results["controllers"].values():
        assert [run["seed"] for run in row["runs"]] == [1000, 1001]
    assert results["verdict"]
    assert results["versions"]["packages"]["stable-baselines3"]


def test_settings_written_are_the_settings_used(done: tuple[RunFolder, str]) -> None:
    run = done[0]
    again = parse_run(run)
    assert again.learning.set == SHORT and again.learning.decisions == 48
    assert arguments_of(again).values["n_steps"] == 16
    assert again.evaluation.baselines == ("autoregressive", "eagle3(3,4,8)")
    assert again.out is None and again.config is None


def parse_run(run: RunFolder, *argv: str) -> TrainConfig:
    from train.command_line import parse_with_files

    return parse_with_files(
        TrainConfig, ["--resume", str(run.path), *argv], "train.py", run_folder.settings_files
    )


def test_shipped_actions_are_the_trained_policys(done: tuple[RunFolder, str]) -> None:
    run = done[0]
    model = load_model(run.checkpoint, PPO)
    controller = LearnedController.load(run.controller)
    found = compare(model, controller, np.random.default_rng(3))
    assert (found.observations, found.differing_actions) == (1000, 0)
    assert found.largest_difference < 1e-4
    assert controller.manifest.hold == 2
    assert controller.manifest.training["decisions"] == model.num_timesteps


def test_a_changed_policy_is_noticed(done: tuple[RunFolder, str]) -> None:
    import torch

    model = load_model(done[0].checkpoint, PPO)
    bias = model.acting().layers[-1].bias
    with torch.no_grad():
        bias.add_(torch.linspace(0, 30, len(bias)))  # against the preference for small tiers, too
    found = compare(model, LearnedController.load(done[0].controller), np.random.default_rng(0))
    assert not found.holds


def test_card_is_short_and_says_how_good(done: tuple[RunFolder, str]) -> None:
    run = done[0]
    card = (run.controller / "card.md").read_text()
    verdict = json.loads((run.path / "results.json").read_text())["verdict"]
    assert verdict in card
    assert len(card.splitlines()) == 10


def test_onnx_logits_equal_the_policys(done: tuple[RunFolder, str]) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = load_model(done[0].checkpoint, PPO)
    shape, weights = network_of(model)
    features = shape.layers[0]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = runtime.InferenceSession(onnx_logits(shape, weights), options)
    observations = np.random.default_rng(0).uniform(0, 1, (5, features)).astype(np.float32)
    (logits,) = graph.run(None, {"observation": observations})
    np.testing.assert_allclose(logits, policy_outputs(model, observations[None])[0], atol=1e-5)


def test_export_again_writes_the_same_weights_and_checks(
    done: tuple[RunFolder, str], tmp_path: Path
) -> None:
    console = quiet()
    folder = export_run.export_run(
        ExportConfig(done[0].path, out=tmp_path / "again", check=True), console
    )
    for name in ("weights.safetensors",):
        assert (folder / name).read_bytes() == (done[0].controller / name).read_bytes()
    assert "all 1,000 actions equal" in printed_on(console)


def test_resume_goes_on_counting(server: LiveServer, workload: Path, tmp_path: Path) -> None:
    run = session.train(settings(workload, tmp_path / "run"), lambda _: server, quiet())
    before, rows = load_model(run.checkpoint, PPO), len(lines(run))
    longer = replace(settings(workload, tmp_path / "run", decisions=96), out=None, resume=run.path)
    again = session.train(longer, lambda _: server, quiet())
    after = load_model(again.checkpoint, PPO)
    assert again.path == run.path
    assert (before.num_timesteps, after.num_timesteps) == (48, 96)
    assert (before.updates, after.updates) == (3, 6)
    assert after.trained_s > before.trained_s
    steps = [row["step"] for row in lines(run)]
    assert len(steps) > rows and steps == sorted(steps)
    assert steps[rows] > before.num_timesteps
    assert len((run.path / "command.txt").read_text().splitlines()) == 2
    assert run.is_done


def test_resuming_a_trained_run_only_compares_and_exports(
    done: tuple[RunFolder, str], server: LiveServer, workload: Path
) -> None:
    run = done[0]
    before = load_model(run.checkpoint, PPO).num_timesteps
    config = replace(settings(workload, run.path), out=None, resume=run.path)
    session.train(config, lambda _: server, quiet())
    assert load_model(run.checkpoint, PPO).num_timesteps == before
    assert run.is_done


class StopAfter(StopRequest):
    """A Ctrl-C that comes after so many looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        super().__init__()

    @property  # type: ignore[override]
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    @requested.setter
    def requested(self, value: bool) -> None:
        pass


def test_a_stop_saves_and_says_how_to_resume(
    server: LiveServer, workload: Path, tmp_path: Path
) -> None:
    console = quiet()
    config = settings(workload, tmp_path / "run", decisions=None)
    run = session.train(config, lambda _: server, console, StopAfter(40))
    assert f"python train.py --resume {run.path}" in printed_on(console)
    assert not run.is_done
    assert (run.path / "unfinished").read_text() == "stopped while training\n"
    assert load_model(run.checkpoint, PPO).num_timesteps == 41
    assert not run.controller.exists()


SCRIPT = """
import sys
from pathlib import Path
from rich.console import Console
from engine.protocol import Limits
from engine.tiny import tiny_server
from train import session
from train.command_line import run_command
from tests.test_train import settings
workload, out = map(Path, sys.argv[1:])
server = tiny_server(limits=Limits(slots=4))
endless = settings(workload, out, decisions=None)
run_command(lambda: session.train(endless, lambda _: server) and None)
"""


def test_a_signal_to_the_process_ends_it_cleanly(workload: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(workload), str(tmp_path / "run")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:  # a plain line tells that training is under way
        printed += line
        if line.startswith("train"):
            process.send_signal(signal.SIGINT)
            break
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "again to stop now" in errors
    assert "--resume" in printed + rest
    assert load_model(tmp_path / "run" / "checkpoints" / "last.zip", PPO).num_timesteps > 0


def test_a_full_disk_in_a_run_is_one_sentence(
    server: LiveServer, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "last.zip")

    monkeypatch.setattr("train.learning.save_model", full)
    config = settings(workload, tmp_path / "run")
    with pytest.raises(UserError, match=r"the disk is full while writing last\.zip"):
        session.train(config, lambda _: server, quiet())
    assert (tmp_path / "run" / "unfinished").is_file()


def test_training_starts_with_small_trees_and_batches(
    server: LiveServer, workload: Path, tmp_path: Path
) -> None:
    config = settings(workload, tmp_path / "run")
    draw = drawing(server, config.serving, served_workload(config.serving))
    arguments = arguments_of(config)
    env = environment(server, draw, config, arguments)
    policy: Any = new_model(env, config, arguments).policy
    observation = env.observation_space.sample()[None]
    chosen: Any = policy.get_distribution(policy.obs_to_tensor(observation)[0])
    tiers = zip(chosen.log_p[0].exp(), chosen.action_dims, strict=True)
    several = [probability[:count] for probability, count in tiers if count > 1]
    assert len(several) == 9 + 1  # depth, width and nodes of three classes; who runs at once
    for probability in several:
        assert (probability[:-1] > 1.5 * probability[1:]).all()


def test_a_bug_leaves_a_report_without_messages(
    server: LiveServer, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = "".join(("sec", "ret"))

    def broken(*_: object) -> Learner:
        raise RuntimeError(f"the prompt was: {prompt}")

    monkeypatch.setattr("train.first_model.new_model", broken)
    with pytest.raises(CrashError) as caught:
        session.train(settings(workload, tmp_path / "run"), lambda _: server, quiet())
    report = caught.value.report.read_text()
    assert caught.value.report == tmp_path / "run" / "crash.txt"
    assert "RuntimeError" in report and "train_model" in report
    assert prompt not in report
