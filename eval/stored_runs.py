"""A comparison's runs, each kept as JSON when it is done, and taken up by the same command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from eval.kept_runs import Kept
from eval.metrics import ClassMetrics, EpisodeMetrics, Percentiles
from eval.runner import Run


class StoredRuns:
    """`eval.runner` asks it before a run, and hands it over after."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def load(self, controller: str, seed: int) -> Run | None:
        """The run, if it was done before."""
        made = self.kept.load(_name(controller, seed))
        return None if made is None else run_of(made)

    def save(self, run: Run) -> None:
        """Keep it. Raises OSError."""
        self.kept.save(_name(run.controller, run.seed), asdict(run))


def run_of(made: Mapping[str, Any]) -> Run:
    """A run from what `dataclasses.asdict` made of it."""
    metrics = dict(made["metrics"])
    by_class = {name: _of_class(of) for name, of in metrics.pop("by_class").items()}
    return Run(**{**made, "metrics": EpisodeMetrics(**metrics, by_class=by_class)})


def _of_class(made: Mapping[str, Any]) -> ClassMetrics:
    found: dict[str, Any] = {
        name: Percentiles(**of) if isinstance(of, dict) else of for name, of in made.items()
    }
    return ClassMetrics(**found)


def _name(controller: str, seed: int) -> str:
    return f"{controller} · seed {seed}"
