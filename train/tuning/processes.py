"""Working through a study's trials, in this process and in others beside it.

Processes, not threads: serving holds the interpreter. They meet in the study's storage alone; the
first one has served the defaults before the others begin, since all are compared with those. A
trial that fails is kept, with its reason.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from engine.errors import UserError
from train.interrupt import StopRequest
from train.tuning.search_space import Space, distributions
from train.tuning.study import StudyPlan, this_process

if TYPE_CHECKING:
    from optuna import Study, Trial

Judging = Callable[["Study", "Trial"], list[float]]
"""Values of a trial; raises optuna.TrialPruned."""
MakeJudge = Callable[[], AbstractContextManager[Judging]]
"""What a process makes its judge with; must be picklable."""
REASON, PLACES = "reason", "places"
"""Names of a failed trial's attributes; the second, of our own bugs, is the traceback."""
LOOK_EVERY_S = 0.5


class SharedStop(StopRequest):
    """A stop request that other processes hear of, too."""

    def __init__(self) -> None:
        super().__init__()
        self.event: Event = multiprocessing.get_context("spawn").Event()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """As `StopRequest`'s."""
        self.event.set()
        super().handle(number, frame)


@dataclass
class Helpers:
    """Further processes on the study, from entering to leaving."""

    plan: StudyPlan
    space: Space
    make_judge: MakeJudge
    count: int
    stop: SharedStop
    processes: list[SpawnProcess] = field(default_factory=list)

    def __enter__(self) -> Helpers:
        context = multiprocessing.get_context("spawn")
        self.processes = [
            context.Process(
                target=_help,
                args=(self.plan, self.space, self.make_judge, number, self.stop.event),
                daemon=True,
            )
            for number in range(1, self.count + 1)
        ]
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # broken off here, so there too
            for process in self.processes:
                process.terminate()
        for process in self.processes:
            process.join()

    def wait(self, told: Callable[[], None]) -> list[int]:
        """Until all have ended; exit codes of those that failed. `told` is called meanwhile."""
        for process in self.processes:
            while process.is_alive():
                process.join(LOOK_EVERY_S)
                told()
        return [p.exitcode for p in self.processes if p.exitcode]


def work(
    plan: StudyPlan, study: Study, space: Space, judge: Judging, stopped: Callable[[], bool]
) -> None:
    """Trials until there are enough or a stop is asked for; a trial that was begun is finished."""
    while not stopped():
        trial = _next(plan, study, space)
        if trial is None:
            return
        judge_one(study, trial, judge)


def judge_one(study: Study, trial: Trial, judge: Judging) -> None:
    """One trial to its end, whatever that is."""
    import optuna
    from optuna.trial import TrialState

    trial.set_user_attr("process", this_process())
    try:
        values = judge(study, trial)
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except UserError as error:
        _fail(study, trial, str(error))
    except KeyboardInterrupt:
        _fail(study, trial, "stopped")
        raise
    except OSError as error:  # a full disk would fail one trial after the other
        _fail(study, trial, str(error))
        raise
    except Exception as error:  # kept and told; its message may quote a prompt, places do not
        places = traceback.extract_tb(error.__traceback__)
        trial.set_user_attr(PLACES, [f"{p.filename}:{p.lineno} in {p.name}" for p in places])
        last = f"{Path(places[-1].filename).name}:{places[-1].lineno}"
        _fail(study, trial, f"{type(error).__name__} in {last}")
    else:
        study.tell(trial, values)


def begun(study: Study) -> int:
    """Trials that were begun, however they ended."""
    from optuna.trial import TrialState

    return sum(t.state is not TrialState.WAITING for t in study.get_trials(deepcopy=False))


def _next(plan: StudyPlan, study: Study, space: Space) -> Trial | None:
    """The next trial; None when there are enough of them."""
    from filelock import FileLock

    with FileLock(plan.folder / "asking.lock"):  # else two processes would both take the last one
        return study.ask(distributions(space)) if begun(study) < plan.trials else None


def _fail(study: Study, trial: Trial, reason: str) -> None:
    from optuna.trial import TrialState

    trial.set_user_attr(REASON, reason)
    study.tell(trial, state=TrialState.FAIL)


def _help(plan: StudyPlan, space: Space, make_judge: MakeJudge, number: int, stop: Event) -> None:
    """What a further process does. Ctrl-C reaches it through the first one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    study = plan.open(number)
    with make_judge() as judge:
        work(plan, study, space, judge, stop.is_set)
