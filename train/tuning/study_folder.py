"""A study's folder: what was asked, the journal of trials, what came of it; each file whole.

config.toml command.txt versions.json   what was asked
journal.log                             the study, as Optuna keeps it (without --storage)
trials/                                 runs of the trials that train something
results.json best.toml plots/           what came of it
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
from train.tuning.tune_config import TuneConfig

STUDY_FORMAT = 1
JOURNAL = "journal.log"


class StudyFolder:
    """One study on disk. `create` makes a new one, `open` takes up one that is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: TuneConfig, now: datetime) -> StudyFolder:
        """Make the folder. Raises UserError where it is taken or cannot be made."""
        from engine.workload import workload  # not at the top: `--help` reads this file

        work = slug(workload(config.served_traces[0]).name)
        name = f"tune-{slug(config.policy)}-{work}-{now:%Y%m%d-%H%M%S}"
        path = RUNS / name if config.out is None else config.out
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(
                f"--out {path}: there is something already; name a new folder, or go on with a "
                f"study by --resume {path}"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"--out {path}: the folder cannot be made ({error.strerror}); name another"
            ) from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> StudyFolder:
        """Take up a study. Raises UserError when it is none, or of another format."""
        stamp = path / "versions.json"
        if not (stamp.is_file() and (path / "config.toml").is_file()):
            raise UserError(
                f"{path}: no study's folder (it holds no versions.json and config.toml); expected "
                "one that tune.py made, such as runs/tune-…"
            )
        try:
            found = json.loads(stamp.read_text(encoding="utf-8")).get("study_format")
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
            raise UserError(f"{stamp} is damaged ({error}); start a new study") from error
        if found != STUDY_FORMAT:
            raise UserError(
                f"{path}: no study's folder of format {STUDY_FORMAT}; expected one that tune.py "
                "of this DraftGym made"
            )
        return cls(path)

    def write_request(self, config: TuneConfig) -> None:
        """config.toml, command.txt (one line a start) and versions.json."""
        settings = replace(config, out=None, config=None, resume=None)
        write_atomic(self.path / "config.toml", as_toml(settings))
        command = self.path / "command.txt"
        before = command.read_text(encoding="utf-8") if command.is_file() else ""
        write_atomic(command, f"{before}{shlex.join(['python', *sys.argv])}\n")
        self.write_json("versions.json", {"study_format": STUDY_FORMAT, **versions()})

    def write_json(self, name: str, values: Mapping[str, Any]) -> Path:
        """Write `values` as a file of that name."""
        path = self.path / name
        text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(path, text + "\n")
        return path

    @property
    def journal(self) -> Path:
        """Where trials are kept unless --storage says otherwise."""
        return self.path / JOURNAL

    @property
    def best(self) -> Path:
        """The winner, as evaluate.py takes it."""
        return self.path / "best.toml"


def settings_files(config: TuneConfig) -> list[Path]:
    """The files that give defaults, weakest first: the resumed study's, then --config."""
    study = [StudyFolder.open(config.resume).path / "config.toml"] if config.resume else []
    return study + ([config.config] if config.config else [])
