"""What a trial is worth: its controller serves every instance, unless it is hopeless before.

Values are gains over the defaults (`train.tuning.figures.gain`), which are the first trial and so
gain nothing. What is reported on the way is what the pruner asks for: to Wilcoxon's the gain on an
instance, which it pairs with that of the best trial on the same one; to the others the gain so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller
from train.tuning.bench import Bench, Instance
from train.tuning.figures import Figure, gain
from train.tuning.search_space import Space, Values

if TYPE_CHECKING:
    from optuna import Study, Trial

DEFAULTS = "defaults"
"""Name of the study's attribute with the trial of the defaults and what it served by stage."""
STAGES = "stages"
CONTROLLER, SERVED, PRUNED_AFTER = "controller", "served", "pruned_after"
"""Names of a trial's attributes."""

Served = dict[str, dict[str, float]]
"""Figures by name, by instance."""


class Subject(Protocol):
    """What is tuned."""

    space: Space

    @property
    def defaults(self) -> dict[str, float]:
        """Values of the first trial."""
        ...

    @property
    def rungs(self) -> int:
        """How often a trial is judged while it trains; 1: only when it is there as a whole."""
        ...

    def spelled(self, values: Values) -> str:
        """How to type what a trial with those values serves."""
        ...

    def controllers(self, values: Values, trial: int) -> Iterator[Controller]:
        """The controller of a trial, as it is judged one time after the other; often but once."""
        ...

    def policy(self, values: Values, trial: int) -> str:
        """What `evaluate.py --policy` takes for a trial that is over."""
        ...


@dataclass
class Judge:
    """Serves a trial's controller and says what it gains, by objective."""

    subject: Subject
    bench: Bench
    instances: Sequence[Instance]
    figures: Sequence[Figure]
    pruner: str
    seed: int
    told: Callable[[float], None] = lambda share: None
    """Is told which share of a trial is done."""

    def __call__(self, study: Study, trial: Trial) -> list[float]:
        """Gains; raises optuna.TrialPruned, and UserError where nothing could be counted."""
        trial.set_user_attr(CONTROLLER, self.subject.spelled(trial.params))
        # While it trains, a trial is compared with the defaults as they were at the same stage.
        bases: list[Served] | None = study.user_attrs.get(DEFAULTS, {}).get(STAGES)
        stages: list[Served] = []
        staged = self.subject.rungs > 1
        for stage, controller in enumerate(self.subject.controllers(trial.params, trial.number)):
            base = None if bases is None else bases[stage]
            stages.append(served := {})
            for at in self._order(trial.number):
                instance = self.instances[at]
                served[instance.key] = self.bench.serve(controller, instance)
                share = len(served) / len(self.instances)
                self.told((stage + share) / self.subject.rungs)
                if not staged and self._is_hopeless(study, trial, at, base, served):
                    return self._given_up(study, trial, base, served)
            if staged and self._is_behind(trial, stage, base, served):
                return self._given_up(study, trial, base, served)
        trial.set_user_attr(SERVED, stages[-1])
        if bases is None:
            study.set_user_attr(DEFAULTS, {"trial": trial.number, STAGES: stages})
        return self._gains(None if bases is None else bases[-1], stages[-1])

    def _order(self, trial: int) -> list[int]:
        """Which instance is served when: shuffled where they are paired one by one."""
        if self.pruner != "wilcoxon":
            return list(range(len(self.instances)))
        return np.random.default_rng((self.seed, trial)).permutation(len(self.instances)).tolist()

    def _is_hopeless(
        self, study: Study, trial: Trial, at: int, base: Served | None, served: Served
    ) -> bool:
        if self.pruner == "none":
            return False
        if self.pruner == "wilcoxon":
            key, name = self.instances[at].key, self.figures[0].name
            difference = served[key][name] - (base or served)[key][name]
            if not math.isfinite(difference):
                return False
            trial.report(difference, at)
        else:
            so_far = self._gain(self.figures[0], base, served)
            if not math.isfinite(so_far):
                return False
            trial.report(so_far, len(served))
        return len(served) < len(self.instances) and trial.should_prune()

    def _is_behind(self, trial: Trial, stage: int, base: Served | None, served: Served) -> bool:
        if self.pruner == "none":
            return False
        trial.report(self._gains(base, served)[0], stage + 1)
        return stage + 1 < self.subject.rungs and trial.should_prune()

    def _given_up(
        self, study: Study, trial: Trial, base: Served | None, served: Served
    ) -> list[float]:
        import optuna

        trial.set_user_attr(PRUNED_AFTER, len(served))
        trial.set_user_attr(SERVED, served)
        if self.pruner != "wilcoxon":
            raise optuna.TrialPruned
        # The test says that it is worse than the best trial, so its estimate is kept below that
        # one, which must be a trial that served everything for others to be paired with it.
        (estimate,) = self._gains(base, served)
        if self.figures[0].higher_is_better:
            return [min(estimate, math.nextafter(study.best_value, -math.inf))]
        return [max(estimate, math.nextafter(study.best_value, math.inf))]

    def _gains(self, base: Served | None, served: Served) -> list[float]:
        gains = [self._gain(figure, base, served) for figure in self.figures]
        if not np.isfinite(gains).all():
            names = " and ".join(f.name for f in self.figures)
            raise UserError(
                f"nothing to count: of {len(served)} runs none had a finite {names} to compare; "
                "expected runs that serve requests, so take more --seconds or a higher --load"
            )
        return gains

    def _gain(self, figure: Figure, base: Served | None, served: Served) -> float:
        """In a figure, nan while no instance has it of both."""
        ours = [row[figure.name] for row in served.values()]
        theirs = [(base or served)[key][figure.name] for key in served]
        return gain(ours, theirs)


def has_defaults(study: Study) -> bool:
    """Whether the defaults were served, and their trial was told."""
    from optuna.trial import TrialState

    kept = study.user_attrs.get(DEFAULTS)
    if not kept:
        return False
    return study.get_trials(deepcopy=False)[kept["trial"]].state is TrialState.COMPLETE


def whole(trial: Any) -> bool:
    """Whether the trial served every instance, so that its value is no estimate."""
    return trial.values is not None and PRUNED_AFTER not in trial.user_attrs
