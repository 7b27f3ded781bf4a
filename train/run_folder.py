"""A run's folder: what was asked, what happened, how to resume; complete or marked unfinished.

Every file is written whole or not at all. What they mean to a trainer is `train.saved_model`'s.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.slug import slug
from train.command_folder import CommandFolder, Kind
from train.command_line import RUNS
from train.config import Preset, TrainConfig

UNFINISHED = "unfinished"
DONE = "DONE"
OBSERVED = "observed.json"


class RunFolder(CommandFolder):
    """One run on disk. `create` makes a new one, `open` takes up one that is there."""

    KIND: ClassVar[Kind] = Kind(
        "run", "train.py made, such as runs/ppo-shifting-…", "run_format", 3, "train anew"
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

    @classmethod
    def open(cls, path: Path) -> Self:
        """Take it up. Raises UserError where it is of another format or environment."""
        from train.environment_version import check_environment

        run = super().open(path)
        check_environment(path)
        return run

    def write_request(self, config: TrainConfig) -> None:
        """What was asked, hyperparameters.yaml, and in which environment it is trained."""
        from train.algorithms.arguments import RUN_FILE, arguments_of
        from train.environment_version import FILE, environment_version

        learning = config.learning
        version = environment_version(learning.kind, config.preset, learning.observation)
        self.write_json(FILE, version)
        write_atomic(self.path / RUN_FILE, arguments_of(config).as_yaml())
        self.write_asked(config)

    @property
    def checkpoint(self) -> Path:
        """The last saved model, to resume from."""
        return self.path / "checkpoints" / "last.zip"

    @property
    def fine_tuned(self) -> Path:
        """The model that went on on a live engine from `checkpoint`, to resume that from."""
        return self.path / "checkpoints" / "fine_tuned.zip"

    @property
    def failed(self) -> Path:
        """The model as it stood when training ended over an error; nothing resumes from it."""
        return self.path / "checkpoints" / "failed.zip"

    @property
    def best(self) -> Path:
        """The best model by held-out episodes, or by its own rollouts (`train.best_model`)."""
        return self.path / "best" / "model.zip"

    def model(self, which: Literal["last", "best"]) -> Path:
        """The one of that name."""
        return self.checkpoint if which == "last" else self.best

    def winner(self, config: TrainConfig) -> Path:
        """The model that is exported: the best, where held-out episodes say which it is.

        Else the last: what a live engine's rollouts say is mostly noise, and a reward does not
        tell of the limits that a policy keeps.
        """
        judged = config.serving.backend == "replay" and config.learning.held_out_every > 0
        is_best = judged and not config.reward.limits and self.best.is_file()
        return self.best if is_best else self.checkpoint

    @property
    def controller(self) -> Path:
        """The exported controller."""
        return self.path / "controller"

    @property
    def metrics(self) -> Path:
        """One JSON object a line, appended while training."""
        return self.path / "metrics.jsonl"

    @property
    def metrics_csv(self) -> Path:
        """The same as a table, written when training ends."""
        return self.path / "metrics.csv"

    @property
    def monitor(self) -> Path:
        """A row for every episode of training."""
        return self.path / "monitor.csv"

    def observed(self) -> dict[str, Any] | None:
        """What the best policy saw in its held-out episodes (`policies.novelty`), if it had any."""
        path = self.path / OBSERVED
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

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
    """The files that give defaults, weakest first: a preset's, the resumed run's, then --config.

    A preset is named on the command line or in one of the others. Raises UserError for a run's
    settings from another version of the environment, and for one that was trained otherwise.
    """
    from train.environment_version import FILE, check_environment
    from train.task import settings_of

    if config.config is not None and (config.config.parent / FILE).is_file():
        check_environment(config.config.parent)
    files = RunFolder.defaults(config.resume, config.config)
    if config.resume is not None and config.preset not in (None, _preset_in(files[0])):
        raise UserError(
            f"--preset {config.preset}: {config.resume} was not trained with it, and a run that is "
            "taken up keeps its task; leave it out, or train anew"
        )
    named = [config.preset, *(_preset_in(path) for path in reversed(files))]
    preset = next((name for name in named if name is not None), None)
    return files if preset is None else [settings_of(preset), *files]


def _preset_in(path: Path) -> str | None:
    """The preset that a TOML file of settings names; what is wrong with the file is told later."""
    with contextlib.suppress(OSError, ValueError):
        named = tomllib.loads(path.read_text(encoding="utf-8")).get("preset")
        return named if named in get_args(Preset) else None
    return None


def _free(path: Path) -> Path:
    """`path`, or with -2, -3, … when two runs start in one second."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
