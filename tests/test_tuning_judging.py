"""What a trial is worth, and when it is given up, by subjects whose figures are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

from optuna import Study

from tests.synthetic_tuning import ASKED, SPACE, plan_of
from train.tuning import session
from train.tuning.figures import FIGURES
from train.tuning.judging import Judge
from train.tuning.outcome import Outcome
from train.tuning.processes import work


def judged(folder: Path, it: Worsening, pruner: str, trials: int, seeds: int) -> Study:
    """A study of it, worked to its end."""
    plan = plan_of(folder, pruner=pruner, trials=trials)
    study = plan.create(ASKED)
    instances = session.trial_instances(("a",), seeds)
    judge = Judge(it, it, instances, [FIGURES["score"]], pruner, 0)  # type: ignore[arg-type]
    work(plan, study, it.space, judge, lambda: False)
    return study


def test_a_hopeless_trial_is_given_up_and_never_best(tmp_path: Path) -> None:
    """With a server that serves worse and worse, Wilcoxon's test ends trials."""
    study = judged(tmp_path, Worsening(), "wilcoxon", trials=4, seeds=12)
    served = [len(t.user_attrs["served"]) for t in study.trials]
    assert served[0] == 12 and max(served[1:]) < 12
    assert study.best_trial.number == 0
    found = Outcome.of(study, [FIGURES["score"]])
    assert found.winner.number == 0 and found.pruned == 3 and not found.is_improved


class Worsening:
    """A subject and a bench in one: each trial serves worse than those before it."""

    space: ClassVar = {"x": SPACE["x"]}
    defaults: ClassVar = {"x": 0.0}
    rungs = 1

    def spelled(self, values: object) -> str:
        return "worse"

    def controllers(self, values: object, trial: int) -> Any:
        self.trial = trial
        yield None

    def serve(self, controller: object, instance: Any) -> dict[str, float]:
        return {"score": 100.0 - instance.seed - 10.0 * self.trial}


class Idle(Worsening):
    """As it, but in its first run nobody arrives."""

    def serve(self, controller: object, instance: Any) -> dict[str, float]:
        return super().serve(controller, instance) if instance.seed else {"score": math.nan}


def test_a_run_with_nothing_to_count_fails_no_trial(tmp_path: Path) -> None:
    study = judged(tmp_path, Idle(), "median", trials=2, seeds=3)
    assert [t.values for t in study.trials] == [[0.0], [-10.0]]
    assert list(study.trials[1].intermediate_values) == [2, 3]


class Growing(Worsening):
    """Controllers that learn: each trial is half a point better than the one before, throughout."""

    rungs = 3

    def controllers(self, values: object, trial: int) -> Any:
        for stage in range(self.rungs):
            self.score = 10.0 * stage + 0.5 * trial
            yield None

    def serve(self, controller: object, instance: Any) -> dict[str, float]:
        return {"score": self.score}


def test_a_half_trained_trial_is_compared_with_defaults_as_far(tmp_path: Path) -> None:
    study = judged(tmp_path, Growing(), "median", trials=2, seeds=2)
    assert study.trials[1].intermediate_values == {1: 0.5, 2: 0.5, 3: 0.5}
    assert study.trials[1].values == [0.5]
