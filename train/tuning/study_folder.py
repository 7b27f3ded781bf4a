"""A study's folder: what was asked, the journal of trials, what came of it; each file whole.

config.toml command.txt versions.json   what was asked
journal.log                             the study, as Optuna keeps it (without --storage)
trials/                                 runs of the trials that train something
results.json best.toml plots/           what came of it
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import ClassVar

from eval.slug import slug
from train.command_folder import CommandFolder, Kind
from train.command_line import RUNS
from train.tuning.tune_config import TuneConfig

JOURNAL = "journal.log"


class StudyFolder(CommandFolder):
    """One study on disk. `create` makes a new one, `open` takes up one that is there."""

    KIND: ClassVar[Kind] = Kind(
        "study", "tune.py made, such as runs/tune-…", "study_format", 1, "start a new study"
    )

    @classmethod
    def create(cls, config: TuneConfig, now: datetime) -> StudyFolder:
        """Make the folder. Raises UserError where it is taken or cannot be made."""
        from engine.workload import workload  # not at the top: `--help` reads this file

        work = slug(workload(config.served_traces[0]).name)
        name = f"tune-{slug(config.policy)}-{work}-{now:%Y%m%d-%H%M%S}"
        return cls.make(RUNS / name if config.out is None else config.out)

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
    return StudyFolder.defaults(config.resume, config.config)
