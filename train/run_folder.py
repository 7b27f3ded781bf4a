"""A run's folder: what was asked, what happened, how to resume; complete or marked unfinished.

Every file is written whole or not at all. What they mean to a trainer is `train.saved_model`'s.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import ClassVar

from engine.atomic_write import write_atomic
from eval.slug import slug
from train.command_folder import CommandFolder, Kind
from train.command_line import RUNS
from train.config import TrainConfig

UNFINISHED = "unfinished"
DONE = "DONE"


class RunFolder(CommandFolder):
    """One run on disk. `create` makes a new one, `open` takes up one that is there."""

    KIND: ClassVar[Kind] = Kind(
        "run", "train.py made, such as runs/ppo-shifting-…", "run_format", 2, "train anew"
    )

    @classmethod
    def create(cls, config: TrainConfig, now: datetime) -> RunFolder:
        """Make the folder and write what was asked. Raises UserError when --out is taken."""
        from engine.workload import workload  # not at the top: `--help` reads this file

        work = slug(workload(config.serving.workload).name)
        name = f"{config.learning.policy}-{work}-{now:%Y%m%d-%H%M%S}"
        run = cls.make(config.out if config.out is not None else _free(RUNS / name))
        run.mark_unfinished("made, not trained yet")
        run.write_request(config)
        return run

    def write_request(self, config: TrainConfig) -> None:
        """What was asked, and hyperparameters.yaml."""
        from train.algorithms.arguments import RUN_FILE, arguments_of

        write_atomic(self.path / RUN_FILE, arguments_of(config).as_yaml())
        self.write_asked(config)

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


def settings_files(config: TrainConfig) -> list[Path]:
    """The files that give defaults, weakest first: the resumed run's, then --config."""
    return RunFolder.defaults(config.resume, config.config)


def _free(path: Path) -> Path:
    """`path`, or with -2, -3, … when two runs start in one second."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
