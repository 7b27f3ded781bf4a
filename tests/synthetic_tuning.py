"""Objectives whose optimum is known, so that a search can be judged; light, since processes import
it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from policies.tunable import Tunable
from train.tuning.processes import Judging
from train.tuning.search_space import Space, in_words
from train.tuning.study import StudyPlan

SPACE: Space = {"x": Tunable(-2.0, 2.0), "k": Tunable(0, 20, whole=True)}
BEST = {"x": 0.7, "k": 13}
ASKED = {"searched": in_words(SPACE), "served": {"seeds": "3"}}
"""What a study keeps of what was asked."""


def plan_of(folder: Path, **given: Any) -> StudyPlan:
    """A study in a journal."""
    usual: dict[str, Any] = {
        "name": "synthetic", "folder": folder, "journal": folder / "journal.log", "storage": None,
        "directions": ("maximize",), "sampler": "tpe", "pruner": "none", "trials": 20,
        "reports": 1, "seed": 0,
    }  # fmt: skip
    return StudyPlan(**(usual | given))


def hill(params: dict[str, Any]) -> float:
    """0 at BEST, below elsewhere."""
    return -((params["x"] - BEST["x"]) ** 2) - ((params["k"] - BEST["k"]) / 10) ** 2


@contextmanager
def hill_judge() -> Iterator[Judging]:
    """A judge of the hill."""
    yield lambda study, trial: [hill(trial.params)]


@contextmanager
def meeting_judge(all_here: Barrier) -> Iterator[Judging]:
    """As that of the hill, but nobody's first trial ends before everybody has begun one."""
    met: list[int] = []

    def judge(study: object, trial: Any) -> list[float]:
        if not met:
            met.append(all_here.wait(60.0))
        return [hill(trial.params)]

    yield judge


@contextmanager
def two_judge() -> Iterator[Judging]:
    """Two objectives that pull apart: x² down, (x − 1)² + k / 20 down."""

    def judge(study: object, trial: Any) -> list[float]:
        x, k = trial.params["x"], trial.params["k"]
        return [x**2, (x - 1.0) ** 2 + k / 20]

    yield judge
