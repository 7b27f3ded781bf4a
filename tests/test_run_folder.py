"""A run's folder and what writes into it: formats, atomic writes, metrics, settings, signals."""

import json
import math
import os
import signal
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from engine.atomic_write import write_atomic
from engine.errors import UserError
from train.callbacks import JsonLines
from train.command_line import as_toml, file_arguments, parse
from train.config import Serving, TrainConfig
from train.interrupt import StopRequest
from train.run_folder import RunFolder


def test_a_second_signal_breaks_off() -> None:
    before = signal.getsignal(signal.SIGINT)  # a shell's background job ignores it
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "versions.json").write_text('{"run_format": 99}')
    with pytest.raises(UserError, match=r"holds no config\.toml"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.toml").touch()
    reads = RunFolder.KIND.format
    with pytest.raises(UserError, match=f"format 99; this DraftGym reads format {reads}"):
        RunFolder.open(tmp_path)


def test_a_folder_with_something_in_it_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UserError, match="there is something already"):
        RunFolder.create(TrainConfig(out=tmp_path), datetime(2026, 1, 1))


@pytest.mark.parametrize("own_name", [None, "../../elsewhere"])
def test_a_run_folder_is_one_folder_in_runs(
    own_name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a workload is called: a trace has a path in its name, a file may name itself."""
    monkeypatch.chdir(tmp_path)
    text = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text(text)
    (tmp_path / "own.toml").write_text(f'name = "{own_name}"\nload = 1.0\n')
    workload = "csv:data/mine.csv" if own_name is None else "own.toml"
    config = TrainConfig(serving=Serving(workload=workload))
    run = RunFolder.create(config, datetime(2026, 1, 1))
    assert run.path.resolve().parent == (tmp_path / "runs").resolve()
    assert run.path.name.startswith("ppo-") and run.path.name.endswith("-20260101-000000")


def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.zip"
    write_atomic(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["last.zip"]


def test_metrics_drop_what_a_kill_left_half_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st')
    JsonLines(path).write({"a": math.nan, "b": 2.0, "text": "no"}, {}, step=2)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[1]["a"] is None and rows[1]["b"] == 2.0 and "text" not in rows[1]


def test_toml_and_flags_are_one_schema(tmp_path: Path) -> None:
    config = replace(TrainConfig(), serving=Serving(load=0.7, workload='a "b" \\ c'))
    path = tmp_path / "config.toml"
    path.write_text(as_toml(config), encoding="utf-8")
    assert parse(TrainConfig, file_arguments(TrainConfig, path), "train.py") == config
