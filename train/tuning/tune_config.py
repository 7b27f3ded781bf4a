"""What `tune.py` may be told: the one schema of its flags, its TOML file and a study's config.toml.

Light on imports, since `--help` reads it. Values are checked by `check`, after parsing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.errors import UserError
from train.command_line import leaves, nearest
from train.config import ALGORITHMS, Serving, check_serving

LEARNED = ("ppo", "recurrent-ppo", "maskable-ppo")
"""Learning algorithms whose hyper-parameters can be searched."""

OBJECTIVES = ("score", "goodput", "valid", "attainment", "energy", "accuracy")
"""By name; `train.tuning.figures` says what they are."""
Sampler = Literal["auto", "tpe", "cma-es", "nsga-ii"]
Pruner = Literal["auto", "none", "median", "hyperband", "wilcoxon"]
MOST_SEEDS = 1000
"""Trials are given arrivals of the seeds below; those from there on are held out."""


@dataclass(frozen=True)
class TuneConfig:
    """Search a controller's constants, then test the winner on arrivals that no trial saw."""

    policy: str = ""
    """Analytic controller, as a name or a call whose arguments stay as given, or a learning
    algorithm: ppo, recurrent-ppo, maskable-ppo."""
    trials: int = 100
    """Trials in all, resumed ones included. The first is the defaults."""
    objectives: tuple[str, ...] = ("score",)
    """One or two of score (SLO-valid tokens a second less 8 tokens a violation), goodput, valid,
    attainment, energy (joules a token) and accuracy (share of tokens that are the target's own)."""
    sampler: Sampler = "auto"
    """Auto: tpe for one objective, nsga-ii for two."""
    pruner: Pruner = "auto"
    """Who ends hopeless trials early. Auto: wilcoxon (paired with the best trial) for analytic
    controllers, median for learning ones, none for two objectives."""
    processes: int = 1
    """Processes that share the study."""
    minutes: float | None = None
    """Training time of a trial, for learning algorithms; none: 1."""
    traces: tuple[str, ...] = ()
    """Workloads that every trial serves; none: the one of --workload."""
    seeds: int = 10
    """Seeded arrivals of each trace in a trial, the same in all trials."""
    seconds: float = 20.0
    """Engine time of a run; requests arrive in its first part."""
    held_out_traces: tuple[str, ...] = ()
    """Workloads of the test at the end; none: those of the trials."""
    held_out_seeds: int = 20
    """Seeded arrivals of each trace in the test at the end, which no trial is given."""
    serving: Serving = field(default_factory=Serving)
    storage: str | None = None
    """URL of an Optuna database, such as sqlite:///studies.db; none: a journal in the folder."""
    seed: int = 0
    """Of the sampler, and of the interval's resampling."""
    out: Path | None = None
    """Folder of the study to make; none: runs/tune-POLICY-WORKLOAD-DATE-TIME."""
    config: Path | None = None
    """TOML file of settings, keys named as these options; the command line overrides it."""
    resume: Path | None = None
    """Folder of a study to go on with; its settings hold unless given anew."""

    @property
    def is_learned(self) -> bool:
        """Whether a trial trains something."""
        return self.policy in LEARNED

    @property
    def served_traces(self) -> tuple[str, ...]:
        """Workloads of the trials."""
        return self.traces or (self.serving.workload,)

    @property
    def test_traces(self) -> tuple[str, ...]:
        """Workloads of the test at the end."""
        return self.held_out_traces or self.served_traces

    @property
    def sampled_by(self) -> str:
        """The sampler, settled."""
        if self.sampler == "auto":
            return "nsga-ii" if len(self.objectives) > 1 else "tpe"
        return self.sampler

    @property
    def pruned_by(self) -> str:
        """The pruner, settled."""
        if self.pruner == "auto":
            if len(self.objectives) > 1:
                return "none"
            return "median" if self.is_learned else "wilcoxon"
        return self.pruner

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        if not self.policy:
            raise UserError(
                "--policy: expected a controller to tune, as in "
                "python tune.py --policy adaptivespec"
            )
        if self.policy in ALGORITHMS and not self.is_learned:
            raise UserError(
                f"--policy {self.policy}: no ranges are known for this learning algorithm; "
                f"expected {', '.join(LEARNED)}, or an analytic controller"
            )
        if self.out is not None and self.resume is not None:
            raise UserError(
                f"--out {self.out} --resume {self.resume}: a resumed study stays in its folder; "
                "give one of the two"
            )
        values = leaves(self)
        for name in ("trials", "processes", "seeds", "held_out_seeds", "seed"):
            least = 0 if name == "seed" else 2 if name in ("trials", "held_out_seeds") else 1
            if values[name] < least:
                raise UserError(
                    f"--{name.replace('_', '-')} {values[name]}: expected a number of at least "
                    f"{least}"
                )
        for name in ("seconds", "minutes"):
            value = values[name]
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UserError(f"--{name} {value}: expected a number above 0")
        if self.seeds > MOST_SEEDS:
            raise UserError(
                f"--seeds {self.seeds}: seeds from {MOST_SEEDS} on are held out for the test; "
                f"expected at most {MOST_SEEDS}"
            )
        check_serving(self.serving)
        self._check_objectives()
        self._check_search()

    def _check_objectives(self) -> None:
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise UserError(
                    f"--objectives {name}: no figure of that name; {nearest(name, OBJECTIVES)}"
                )
        count = len(self.objectives)
        if not 1 <= count <= 2 or len(set(self.objectives)) < count:
            raise UserError(
                f"--objectives {' '.join(self.objectives)}: expected one figure, or two "
                "different ones"
            )

    def _check_search(self) -> None:
        """What does not go together."""
        two = len(self.objectives) > 1
        if two and self.sampler == "cma-es":
            raise UserError(
                "--sampler cma-es: searches for one objective; with two take nsga-ii or tpe"
            )
        if two and self.pruned_by != "none":
            raise UserError(
                f"--pruner {self.pruner}: nothing is pruned with two objectives; leave it out"
            )
        if self.serving.backend == "live":
            if self.processes > 1:
                raise UserError(
                    f"--processes {self.processes}: live trials would slow one another down and "
                    "measure that; expected 1, or --backend replay"
                )
            if self.is_learned:
                raise UserError(
                    f"--backend live: trials of {self.policy} train on replay; leave it out"
                )
        if not self.is_learned and self.minutes is not None:
            raise UserError(
                f"--minutes {self.minutes:g}: is the training time of a learning algorithm, and "
                f"{self.policy} is not trained; leave it out"
            )
        if self.is_learned and self.pruned_by == "wilcoxon":
            raise UserError(
                "--pruner wilcoxon: pairs analytic controllers run by run; for a learning "
                "algorithm take median, hyperband or none"
            )
