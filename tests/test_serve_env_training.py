"""`train.py` and `evaluate.py` on replay, end to end, from a recording on disk."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.loop import Engine
from engine.replay.fleet.fleet import Fleet
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recording_folder import write_manifest, write_shard
from engine.replay.server import ReplayServer
from policies.learned import LearnedController
from tests.tiny_recording import known_profile, recorded
from train import session
from train.comparison import evaluate
from train.config import Evaluation, Learning, Serving, TrainConfig, check_serving
from train.evaluate_config import EvaluateConfig
from train.evaluation import load_server, served_workload

SHORT = ("n_steps=16", "batch_size=256", "n_epochs=1")
WORKLOAD = "duration_s = 6.0\nload = 0.9\n"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """The tiny recording, its profile and a workload, as flags name them."""
    folder = tmp_path_factory.mktemp("recording")
    manifest, recording = recorded()
    write_manifest(folder, manifest)
    write_shard(folder, recording, 0)
    profile = replace(known_profile(manifest), most_tokens=400).save(folder / "profile.json")
    workload = folder / "tiny.toml"
    workload.write_text(WORKLOAD, encoding="utf-8")
    return Serving(
        backend="replay", model="tiny", recording=folder, profile=profile, workload=str(workload),
        max_tokens=16,
    )  # fmt: skip


def test_a_run_trains_compares_and_exports(serving: Serving, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=160)
    config = TrainConfig(
        learning=Learning(minutes=5.0, decisions=1024, decide_every=2, set=SHORT),
        serving=serving,
        evaluation=Evaluation(2, 16.0, ("autoregressive", "eagle3(3,4,8)")),
        out=tmp_path / "run",
    )
    config.check()
    run = session.train(config, console=console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert run.is_done and LearnedController.load(run.controller)
    assert "replay, modelled time of by hand" in printed  # whose time
    results = json.loads((run.path / "results.json").read_text(encoding="utf-8"))
    assert "replay, modelled time" in results["title"]
    assert "energy is modelled, not measured" in printed


def test_a_comparison_is_the_same_twice(serving: Serving, tmp_path: Path) -> None:
    def runs(name: str) -> dict:
        config = EvaluateConfig(
            policy=("chain(2)", "eagle3(3,4,8)"), serving=serving, seeds=2, seconds=4.0,
            out=tmp_path / name,
        )  # fmt: skip
        out = evaluate(config, Console(file=io.StringIO(), width=160))
        return json.loads((out / "results.json").read_text(encoding="utf-8"))["controllers"]

    assert runs("first") == runs("second")


def test_training_and_comparison_serve_different_texts(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spied on where episodes begin, so whatever flag is passed on the way."""
    config = served_workload(serving)
    assert config.prompt_tokens == 512 and not config.truncate
    server = load_server(serving)
    assert isinstance(server, ReplayServer)
    compared: set[int] = set()
    trained: set[int] = set()
    engine_of, begin = ReplayServer.engine, Fleet.begin

    def engine(self: ReplayServer, requests: list[RecordedRequest], *args: Any) -> Engine:
        compared.update(request.text for request in requests)
        return engine_of(self, requests, *args)

    def begun(self: Fleet, replica: int, requests: list[RecordedRequest]) -> None:
        trained.update(request.text for request in requests)
        begin(self, replica, requests)

    monkeypatch.setattr(ReplayServer, "engine", engine)
    monkeypatch.setattr(Fleet, "begin", begun)
    run = session.train(
        TrainConfig(
            learning=Learning(minutes=5.0, decisions=512, decide_every=2, set=SHORT),
            serving=serving,
            evaluation=Evaluation(2, 8.0, ("autoregressive",)),
            out=tmp_path / "run",
        ),
        lambda _: server,
        Console(file=io.StringIO(), width=160),
    )
    assert run.is_done
    held_out = set(np.flatnonzero(server.recording.held_out).tolist())
    assert compared and compared <= held_out
    assert trained and not trained & held_out


def test_a_table_says_what_of_its_workload_was_not_applied(
    serving: Serving, tmp_path: Path
) -> None:
    stretched, drifting = tmp_path / "stretched.toml", tmp_path / "drift.toml"
    stretched.write_text(
        "load = 0.9\n[[disturbances]]\nkind = 'prompt_length'\nstart_s = 1\nend_s = 3\nvalue = 2\n"
    )
    drifting.write_text("[[regimes]]\nduration_s = 6\nload = 0.9\nacceptance = 0.8\n")
    said = "the nearest is taken on replay"
    for workload, expected in ((str(stretched), True), (str(drifting), False)):
        console = Console(file=io.StringIO(), width=160)
        out = evaluate(
            EvaluateConfig(
                policy=("chain(2)",), serving=replace(serving, workload=workload), seeds=2,
                seconds=4.0, out=tmp_path / f"{expected}",
            ),
            console,
        )  # fmt: skip
        assert (said in console.file.getvalue()) is expected  # type: ignore[attr-defined]
        assert (said in (out / "results.md").read_text(encoding="utf-8")) is expected
        assert "replay has the profile's power" in (out / "results.md").read_text(encoding="utf-8")


def test_a_recording_is_replayed_without_naming_its_model(serving: Serving) -> None:
    assert load_server(replace(serving, model=None, drafter=None)).name == "tiny"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"prompts": Path("mine.jsonl")}, "--prompts mine.jsonl: has no meaning with --backend re"),
        ({"dtype": "float32"}, "--dtype float32: has no meaning"),
        ({"backend": "live"}, "--recording .* has no meaning with --backend live"),
    ],
)
def test_flags_of_the_other_backend_are_refused(serving: Serving, changed: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        check_serving(replace(serving, **changed))


def test_another_model_than_the_recorded_one_is_refused(serving: Serving) -> None:
    with pytest.raises(UserError, match=r"--model llama: the recording .* is of tiny"):
        load_server(replace(serving, model="llama"))
