"""What a study came to: the winner, the Pareto set of two objectives, and the files that say so."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.writing import plain
from train.command_line import as_toml
from train.evaluate_config import EvaluateConfig
from train.tuning.figures import Figure
from train.tuning.held_out import HeldOutGain, told
from train.tuning.judging import (
    CONTROLLER,
    DEFAULTS,
    PRUNED_AFTER,
    Subject,
    has_defaults,
    whole,
)
from train.tuning.processes import PLACES, REASON
from train.tuning.study_folder import StudyFolder
from train.tuning.tune_config import TuneConfig

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

RESULTS = "results.json"
BROKEN_OFF = "its process ended"


@dataclass(frozen=True)
class Outcome:
    """The defaults, who won, and who else is not dominated."""

    defaults: FrozenTrial
    winner: FrozenTrial
    front: list[FrozenTrial]
    """With two objectives those that no trial beats in both; else the winner alone."""
    pruned: int
    failed: list[tuple[int, str]]
    """Number and reason."""

    @property
    def is_improved(self) -> bool:
        """Whether others than the defaults won on the trials' own arrivals.

        Other values, that is: two processes that began at once may both have served the defaults.
        """
        return self.winner.params != self.defaults.params

    @classmethod
    def of(cls, study: Study, figures: Sequence[Figure]) -> Outcome:
        """Raises UserError where the defaults themselves could not be served."""
        from optuna.trial import TrialState

        trials = study.get_trials(deepcopy=False)
        failed = [
            (t.number, str(t.user_attrs.get(REASON, BROKEN_OFF)))
            for t in trials
            if t.state is TrialState.FAIL
        ]
        if not has_defaults(study):
            why = failed[-1][1] if failed else "it was never begun"
            raise UserError(f"the trial of the defaults failed, with which all are compared: {why}")
        defaults = trials[study.user_attrs[DEFAULTS]["trial"]]
        served = [t for t in trials if t.state is TrialState.COMPLETE and whole(t)]
        if len(figures) > 1:
            front = pareto(study)
            winner = _of_front(front, figures)
        else:
            sign = 1.0 if figures[0].higher_is_better else -1.0
            winner = max(served, key=lambda t: (sign * t.values[0], -t.number))
            front = [winner]
        pruned = sum(t.state is TrialState.PRUNED or PRUNED_AFTER in t.user_attrs for t in trials)
        return cls(defaults, winner, front, pruned, failed)


def pareto(study: Study) -> list[FrozenTrial]:
    """Trials that no other is at least as good as in both objectives and better in one."""
    return sorted(study.best_trials, key=lambda trial: trial.number)


def _of_front(front: list[FrozenTrial], figures: Sequence[Figure]) -> FrozenTrial:
    """Most of the first figure among those that are no worse than the defaults in the second.

    There is one: the defaults gain nothing, and if they are not of the front, one of it beats them.
    """
    first, second = (1.0 if f.higher_is_better else -1.0 for f in figures)
    able = [t for t in front if second * t.values[1] >= 0.0]
    return max(able, key=lambda t: (first * t.values[0], second * t.values[1], -t.number))


def in_words(
    best: str,
    found: Outcome,
    figures: Sequence[Figure],
    tested: Sequence[HeldOutGain],
) -> list[str]:
    """The result in words."""
    gains = ", ".join(f.told(v) for f, v in zip(figures, found.winner.values, strict=True))
    lines = [f"best     {best}"]
    if len(found.front) > 1:
        lines.append(
            f"         of {len(found.front)} that none beats in both: most "
            f"{figures[0].name} without less {figures[1].name} than the defaults"
        )
    if found.is_improved:
        lines.append(f"trials   {gains} over the defaults on the arrivals that it was chosen by")
        pairs = zip(tested, figures, strict=True)
        lines += [f"held out {told(one, figure)}" for one, figure in pairs]
    else:
        lines.append("trials   nothing beat the defaults, so they stay")
    lines.append(f"pruned   {found.pruned}; failed {len(found.failed)}")
    lines += [f"         trial {number}: {why}" for number, why in found.failed[:3]]
    return lines


def write_best(folder: StudyFolder, config: TuneConfig, subject: Subject, outcome: Outcome) -> str:
    """best.toml for `evaluate.py --config`: winner against defaults. Returns the winner."""
    trials = [outcome.winner, *([outcome.defaults] if outcome.is_improved else [])]
    policies = tuple(subject.policy(t.params, t.number) for t in trials)
    evaluated = EvaluateConfig(
        policy=policies,
        serving=dataclasses.replace(config.serving, workload=config.test_traces[0]),
        seeds=config.held_out_seeds,
        seconds=config.seconds,
    )
    write_atomic(folder.best, as_toml(evaluated))
    return policies[0]


def write_results(
    folder: StudyFolder,
    config: TuneConfig,
    subject: Subject,
    study: Study,
    figures: Sequence[Figure],
    outcome: Outcome,
    tested: Sequence[HeldOutGain],
) -> None:
    """results.json: every trial, the winner, the test, versions."""
    from eval.versions import versions

    folder.write_json(
        RESULTS,
        plain(
            {
                "policy": config.policy,
                "objectives": [
                    {"figure": f.name, "unit": f.unit, "direction": f.direction} for f in figures
                ],
                "best": _row(subject, outcome.winner),
                "front": [_row(subject, trial) for trial in outcome.front],
                "defaults": _row(subject, outcome.defaults),
                "held_out": [dataclasses.asdict(t) for t in tested],
                "pruned": outcome.pruned,
                "failed": [
                    {"trial": n, "reason": why, "places": study.trials[n].user_attrs.get(PLACES)}
                    for n, why in outcome.failed
                ],
                "trials": [_row(subject, trial) for trial in study.get_trials(deepcopy=False)],
                "command": sys.argv,
                "versions": versions(),
            }
        ),
    )


def _row(subject: Subject, trial: FrozenTrial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": "pruned" if PRUNED_AFTER in trial.user_attrs else trial.state.name.lower(),
        "gain": trial.values,
        "controller": trial.user_attrs.get(CONTROLLER),
        "parameters": trial.params,
    }
