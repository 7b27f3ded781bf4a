"""The Optuna study: where it is kept, who samples and who prunes, and whether it is still the same.

A journal in the study's folder needs no server and takes several processes; a database takes
several machines. What a study searched and served is kept with it, since trials of another space or
other arrivals say nothing about each other.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.errors import UserError
from train.tuning.search_space import changes

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

Direction = Literal["maximize", "minimize"]
ASKED = "asked"
"""Name of the study's attribute that says what was searched and served."""
MOST_POPULATION, LEAST_POPULATION = 50, 8


@dataclass(frozen=True)
class StudyPlan:
    """How a process opens the study. Plain data, so that it can be sent to another one."""

    name: str
    folder: Path
    journal: Path
    storage: str | None
    directions: tuple[Direction, ...]
    sampler: str
    pruner: str
    trials: int
    reports: int
    """Values that a whole trial reports."""
    seed: int

    def create(self, asked: dict[str, dict[str, str]]) -> Study:
        """A new study; `asked` is kept with it. Raises UserError."""
        import optuna

        kept = self._storage()
        try:
            study = optuna.create_study(
                storage=kept, study_name=self.name, directions=list(self.directions),
                sampler=self._sampler(0, 0), pruner=self._pruner(),
            )  # fmt: skip
        except optuna.exceptions.DuplicatedStudyError:
            raise UserError(
                f"--storage {self.storage}: holds a study named {self.name} already; name another "
                "folder by --out"
            ) from None
        study.set_user_attr(ASKED, asked)
        return study

    def open(self, process: int = 0) -> Study:
        """The study that is there, with a sampler of the process's own. Raises UserError."""
        import optuna

        kept = self._storage()
        try:
            study = optuna.load_study(
                study_name=self.name, storage=kept, sampler=None, pruner=self._pruner()
            )
        except KeyError:
            where = self.storage or self.journal
            raise UserError(
                f"{where}: holds no study named {self.name}; start a new one without --resume"
            ) from None
        # Else a resumed study would draw what it drew at its start.
        study.sampler = self._sampler(process, len(study.get_trials(deepcopy=False)))
        return study

    def _storage(self) -> BaseStorage:
        import optuna
        from optuna.storages import JournalStorage, RDBStorage
        from optuna.storages.journal import JournalFileBackend
        from sqlalchemy.exc import SQLAlchemyError

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if self.storage is None:
            try:
                return JournalStorage(JournalFileBackend(str(self.journal)))
            except ValueError as error:  # what JSON and the backend raise for a broken line
                raise UserError(
                    f"{self.journal} is damaged ({error}); start a new study"
                ) from error
        try:
            return RDBStorage(self.storage)
        except (SQLAlchemyError, ImportError) as error:
            raise UserError(
                f"--storage {self.storage}: cannot be opened ({str(error).splitlines()[0]}); "
                "expected the URL of a database, such as sqlite:///studies.db"
            ) from error

    def _sampler(self, process: int, begun: int) -> BaseSampler:
        from optuna.samplers import CmaEsSampler, NSGAIISampler, TPESampler

        words = np.random.SeedSequence((self.seed, process, begun))
        seed = int(words.generate_state(1)[0])
        if self.sampler == "cma-es":
            return CmaEsSampler(seed=seed, warn_independent_sampling=False)
        if self.sampler == "nsga-ii":
            size = min(max(self.trials // 5, LEAST_POPULATION), MOST_POPULATION)
            return NSGAIISampler(population_size=size, seed=seed)
        return TPESampler(seed=seed)

    def _pruner(self) -> BasePruner:
        from optuna.exceptions import ExperimentalWarning
        from optuna.pruners import HyperbandPruner, MedianPruner, NopPruner, WilcoxonPruner

        if self.pruner == "wilcoxon":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                return WilcoxonPruner()
        if self.pruner == "median":
            return MedianPruner(n_startup_trials=5)
        if self.pruner == "hyperband":
            return HyperbandPruner(max_resource=self.reports)
        return NopPruner()


def check_sampler(sampler: str, parameters: int) -> None:
    """Raise UserError where the sampler cannot search so many parameters here."""
    if sampler != "cma-es":
        return
    if importlib.util.find_spec("cmaes") is None:
        raise UserError(
            "--sampler cma-es: needs the package cmaes, which is not installed: "
            "pip install cmaes, or take --sampler tpe"
        )
    if parameters < 2:
        raise UserError(
            "--sampler cma-es: adapts to how parameters hang together, and here is only one; "
            "take --sampler tpe"
        )


def check_unchanged(study: Study, asked: dict[str, dict[str, str]], folder: Path) -> None:
    """Raise UserError, naming what differs, where the study was asked something else before."""
    before: dict[str, Any] = study.user_attrs.get(ASKED, {})
    for what in asked:
        if found := changes(before.get(what, {}), asked[what]):
            raise UserError(
                f"{folder}: what this study {what} has changed since ({'; '.join(found)}), so its "
                "trials cannot be compared; start a new study without --resume"
            )


def mend_journal(path: Path) -> None:
    """Cut a last line that a killed process left half-written, which else nobody could read on."""
    from optuna.storages.journal import JournalFileSymlinkLock

    if not path.is_file():
        return
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


def this_process() -> str:
    """Who runs a trial."""
    return f"{socket.gethostname()}:{os.getpid()}"


def end_orphans(study: Study) -> int:
    """Mark as failed what processes of this machine left running when they ended; how many."""
    from optuna.trial import TrialState

    ended = 0
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, _, number = str(trial.user_attrs.get("process", "")).rpartition(":")
        if host == socket.gethostname() and not _is_alive(int(number)):
            # Another process that goes on with the study may be doing the same.
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            ended += 1
    return ended


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, so alive
        return True
    return True
