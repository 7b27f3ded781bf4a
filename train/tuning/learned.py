"""The hyper-parameters of a learning algorithm as a subject of tuning: a trial is a short training.

A trial trains on replay for the minutes given and is then judged as any controller. Where something
prunes, it is judged at a quarter and at half of its time as well. Sizes are searched as powers of
two, so that batches divide a rollout.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.protocol import Controller
from engine.server import Server
from policies import registry
from policies.tunable import Tunable
from train.algorithms.arguments import Arguments, arguments_of
from train.config import Evaluation, Learning, Serving, TrainConfig
from train.interrupt import StopRequest
from train.tuning.search_space import Space, Values, rounded
from train.tuning.tune_config import TuneConfig

MINUTES = 1.0
RUNGS = (0.25, 0.5, 1.0)
"""Shares of a trial's time after which it is judged where something prunes."""
SPACE: Space = {
    "learning_rate": Tunable(1e-4, 1e-2, log=True),
    "ent_coef": Tunable(1e-4, 3e-2, log=True),
    "n_epochs": Tunable(2, 16, whole=True),
    "log2_n_steps": Tunable(4, 8, whole=True),
    "log2_batches": Tunable(0, 3, whole=True),
}
"""In Stable-Baselines3's names, but for the sizes: decisions of each engine in a rollout, and the
batches that a rollout of all of them is cut into."""


class Deaf(StopRequest):
    """Hears no signal: the tuner's own request ends the study after the trial."""

    def __enter__(self) -> Deaf:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was taken over."""


@dataclass
class LearnedSubject:
    """An algorithm's hyper-parameters; every trial leaves a run folder below `folder`."""

    config: TuneConfig
    folder: Path
    load_server: Callable[[Serving], Server]
    space: Space = field(default_factory=lambda: dict(SPACE))

    @property
    def defaults(self) -> dict[str, float]:
        """What training takes by itself, by the names of the space."""
        return usual(self.config.policy)

    @property
    def rungs(self) -> int:
        """As `RUNGS`, where something prunes."""
        return 1 if self.config.pruned_by == "none" else len(RUNGS)

    def spelled(self, values: Values) -> str:
        """As `train.py` takes it."""
        return f"{self.config.policy} --set {' '.join(settings(self.config.policy, values))}"

    def policy(self, values: Values, trial: int) -> str:
        """The trial's run folder."""
        return str(self._run(trial))

    def controllers(self, values: Values, trial: int) -> Iterator[Controller]:
        """What training has come to at each rung, exported."""
        from rich.console import Console

        from train.session import train

        run = self._run(trial)
        quiet = Console(file=io.StringIO())
        for share in RUNGS[-self.rungs :]:
            whole = self.training(values, share)
            begun = (run / "versions.json").is_file()
            config = replace(whole, resume=run) if begun else replace(whole, out=run)
            train(config, self.load_server, quiet, Deaf())
            yield registry.make(str(run))

    def training(self, values: Values, share: float = 1.0) -> TrainConfig:
        """The training of a trial, or a share of it."""
        minutes = share * (self.config.minutes or MINUTES)
        learning = Learning(policy=self.config.policy, minutes=minutes)
        served = replace(self.config.serving, workload=self.config.served_traces[0])
        return TrainConfig(
            learning=replace(learning, set=settings(self.config.policy, values)),
            serving=served,
            evaluation=Evaluation(eval_seeds=0),
            seed=self.config.seed,
        )

    def _run(self, trial: int) -> Path:
        return self.folder / "trials" / f"{trial:04d}"


def usual(policy: str) -> dict[str, float]:
    """The algorithm's own values on replay, by the names of the space."""
    given = _arguments(policy).values
    rollout = given["n_steps"] * _arguments(policy).n_envs
    sizes = {
        "log2_n_steps": round(math.log2(given["n_steps"])),
        "log2_batches": round(math.log2(rollout / given["batch_size"])),
    }
    return {name: sizes[name] if name in sizes else given[name] for name in SPACE}


def settings(policy: str, values: Values) -> tuple[str, ...]:
    """Values of the space as `train.py --set` takes them, KEY=VALUE each."""
    given = rounded(values)
    steps = 2 ** int(given.pop("log2_n_steps"))
    batches = 2 ** int(given.pop("log2_batches"))
    given |= {"n_steps": steps, "batch_size": steps * _arguments(policy).n_envs // batches}
    return tuple(f"{key}={value}" for key, value in given.items())


def _arguments(policy: str) -> Arguments:
    return arguments_of(TrainConfig(learning=Learning(policy=policy)))
