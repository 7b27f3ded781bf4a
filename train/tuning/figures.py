"""What may be tuned for: figures of one run, each defined once, with its unit and direction.

A study's objective is the interquartile mean, over traces × seeds, of a figure less that of the
defaults on the same arrivals. It is thus in the figure's unit, 0 for the defaults, and what the
test at the end estimates on held-out arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.loop import Engine
from engine.protocol import Outcome, View
from engine.request import RequestRecord
from envs.reward import GoodputReward
from eval.runner import Run
from eval.statistics import interquartile_mean

VIOLATION_TOKENS = GoodputReward().violation_tokens
"""SLO-valid tokens that a violation costs, here as in the reward of training."""


@dataclass
class Accepted:
    """An observer that counts emitted tokens, and those that are the target's only by a margin."""

    tokens: int = 0
    let_through: int = 0

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Count an iteration."""
        self.tokens += int(outcome.accepted_length.sum())
        self.let_through += int(outcome.let_through.sum())

    def on_record(self, record: RequestRecord) -> None:
        """Records are summed up by `eval.metrics`."""

    def close(self) -> None:
        """Nothing is written."""

    @property
    def kept(self) -> float:
        """Share of the emitted tokens that the target itself chose; nan of none."""
        return 1.0 - self.let_through / self.tokens if self.tokens else math.nan


@dataclass(frozen=True)
class Figure:
    """A figure of a run."""

    name: str
    unit: str
    of: Callable[[Run, Accepted], float]
    digits: int = 1
    higher_is_better: bool = True

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """As Optuna has it."""
        return "maximize" if self.higher_is_better else "minimize"

    def told(self, value: float) -> str:
        """A difference with its sign and unit."""
        return f"{value:+.{self.digits}f} {self.unit}"


def score(run: Run, accepted: Accepted) -> float:
    """SLO-valid tokens less 8 for each violation, per second between first arrival and last end."""
    span_s = run.metrics.span_s
    worth = run.metrics.valid_tokens - VIOLATION_TOKENS * run.metrics.violations
    return worth / span_s if span_s > 0 else 0.0


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("score", "tokens/s", score),
        Figure("goodput", "tokens/s", lambda run, _: run.metrics.goodput_tps),
        Figure("valid", "tokens/s", lambda run, _: run.metrics.valid_tps),
        Figure("attainment", "% of requests", lambda run, _: 100 * run.metrics.attainment),
        Figure("energy", "J/token", lambda run, _: run.joules_per_token, 3, False),
        Figure("accuracy", "% of tokens", lambda _, accepted: 100 * accepted.kept, 2),
    )
}


def gain(ours: list[float], theirs: list[float]) -> float:
    """Interquartile mean of paired differences; nan where no pair has both, ± inf kept out."""
    differences = np.subtract(ours, theirs)
    known = differences[np.isfinite(differences)]
    return float(interquartile_mean(known)) if len(known) else math.nan
