"""A run's folder: what was asked, what happened, how to resume; complete or marked unfinished.

Every file is written whole or not at all. What they mean to a trainer is `train.saved_model`'s.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.slug import slug
from eval.versions import versions
from train.command_line import RUNS, as_toml
from train.config import TrainConfig

RUN_FORMAT = 2
UNFINISHED = "unfinished"
DONE = "DONE"


class RunFolder:
    """One run on disk. `create` makes a new one, `open` takes up one that is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: TrainConfig, now: datetime) -> RunFolder:
        """Make the folder and write what was asked. Raises UserError when --out is taken."""
        from engine.workload import workload  # not at the top: `--help` reads this file

        work = slug(workload(config.serving.workload).name)
        name = f"{config.learning.policy}-{work}-{now:%Y%m%d-%H%M%S}"
        path = config.out if config.out is not None else _free(RUNS / name)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(
                f"--out {path}: there is something already; name a new folder, or go on with a "
                f"run by --resume {path}"
            )
        run = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"--out {path}: the folder cannot be made ({error.strerror}); name another"
            ) from error
        run.mark_unfinished("made, not trained yet")
        run.write_request(config)
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Take up a run. Raises UserError when it is none, or of another format version."""
        stamp = path / "versions.json"
        if not stamp.is_file():
            raise UserError(
                f"{path}: no run folder (it holds no versions.json); expected one that train.py "
                "made, such as runs/ppo-shifting-…"
            )
        try:
            found = json.loads(stamp.read_text(encoding="utf-8")).get("run_format")
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
            raise UserError(f"{stamp} is damaged ({error}); train anew") from error
        if found != RUN_FORMAT:
            raise UserError(
                f"{path}: a run folder of format {found!r}; this DraftGym reads format "
                f"{RUN_FORMAT}, so go on with the version that made it, or train anew"
            )
        return cls(path)

    def write_request(self, config: TrainConfig) -> None:
        """config.toml, hyperparameters.yaml, command.txt (one line a start), versions.json."""
        from train.algorithms.arguments import RUN_FILE, arguments_of

        write_atomic(self.path / RUN_FILE, arguments_of(config).as_yaml())
        settings = replace(config, out=None, config=None, resume=None)
        write_atomic(self.path / "config.toml", as_toml(settings))
        command = self.path / "command.txt"
        before = command.read_text(encoding="utf-8") if command.is_file() else ""
        write_atomic(command, f"{before}{shlex.join(['python', *sys.argv])}\n")
        stamp = {"run_format": RUN_FORMAT, **versions()}
        write_atomic(self.path / "versions.json", json.dumps(stamp, indent=2) + "\n")

    @property
    def checkpoint(self) -> Path:
        """The last saved model, to resume from."""
        return self.path / "checkpoints" / "last.zip"

    @property
    def best(self) -> Path:
        """The model that acted in the rollout with the most reward a second."""
        return self.path / "best" / "model.zip"

    @property
    def controller(self) -> Path:
        """The exported controller."""
        return self.path / "controller"

    @property
    def metrics(self) -> Path:
        """One JSON object a line, appended while training."""
        return self.path / "metrics.jsonl"

    @property
    def is_done(self) -> bool:
        """Whether the run went through to its end."""
        return (self.path / DONE).is_file()

    def mark_unfinished(self, state: str) -> None:
        """Say that the folder is not complete, and where it stands."""
        write_atomic(self.path / UNFINISHED, state + "\n")
        (self.path / DONE).unlink(missing_ok=True)

    def mark_done(self, at: datetime) -> None:
        """Say that the folder is complete."""
        write_atomic(self.path / DONE, f"{at:%Y-%m-%d %H:%M:%S}\n")
        (self.path / UNFINISHED).unlink(missing_ok=True)

    def write_json(self, name: str, values: Mapping[str, Any]) -> Path:
        """Write `values` as a file of that name, whole or not at all."""
        path = self.path / name
        write_atomic(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
        return path


def settings_files(config: TrainConfig) -> list[Path]:
    """The files that give defaults, weakest first: the resumed run's, then --config."""
    run = [RunFolder.open(config.resume).path / "config.toml"] if config.resume else []
    return run + ([config.config] if config.config else [])


def _free(path: Path) -> Path:
    """`path`, or with -2, -3, … when two runs start in one second."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
