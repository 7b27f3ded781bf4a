"""Figures of a controller seed by seed, of one disturbance and of all of them together.

Of a disturbance, what several changes brought is put together within the seed; of all, the mean
over the disturbances is, where the seed came through every one of them: means over different
disturbances are not to be set against each other. What hangs on when it settled is `passages`'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eval.parts import figure
from eval.statistics import mean_interval
from eval.survival import kaplan_meier

Rows = Sequence[Mapping[str, Any]]
"""Of one controller and disturbance, failed ones left out."""


class Figure(NamedTuple):
    """A figure of the rows of one seed."""

    name: str
    title: str
    of: Callable[[Rows], float]
    least: float = 0.0
    most: float = math.inf
    """How far the figure can go; no interval reaches further."""


def _share(tokens: str) -> Callable[[Rows], float]:
    """Percent of the oracle's tokens; nan where it has none."""

    def share(rows: Rows) -> float:
        known = [row for row in rows if not math.isnan(row[tokens])]
        best = sum(row["oracle_tokens"] for row in known)
        return 100.0 * sum(row[tokens] for row in known) / best if best > 0 else math.nan

    return share


def _mean(name: str, factor: float = 1.0) -> Callable[[Rows], float]:
    """Mean over the changes that can be judged; nan where none can."""

    def mean(rows: Rows) -> float:
        known = [row[name] for row in rows if not math.isnan(row[name])]
        return factor * float(np.mean(known)) if known else math.nan

    return mean


FIGURES = (
    Figure("regret", "regret, % of the oracle's tokens", _share("regret_tokens"), -math.inf, 100.0),
    Figure("churn", "changes of plan a second", _mean("churn_per_s")),
    Figure("attainment", "attainment of the run, %", _mean("attainment", 100.0), most=100.0),
    Figure("goodput", "goodput of the run, tokens/s", _mean("goodput_tps")),
)


def values(of: Figure, rows: Rows, seeds: Sequence[int], disturbances: Sequence[str]) -> np.ndarray:
    """[seeds] the mean over `disturbances` of the figure; nan where a seed lacks one of them."""
    by_run: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_run.setdefault((row["seed"], row["disturbance"]), []).append(row)
    each = [[of.of(by_run.get((seed, name), [])) for name in disturbances] for seed in seeds]
    return np.array(each, np.float64).mean(axis=1)


def figures_of(rows: Rows, seeds: Sequence[int], disturbances: Sequence[str]) -> dict[str, Any]:
    """Every figure with its interval; the rows are of one controller."""
    whole = [row for row in rows if not row["failed"]]
    found = {}
    for of in FIGURES:
        interval = mean_interval(values(of, whole, seeds, disturbances), np.random.default_rng(0))
        found[of.name] = figure(interval, of.least, of.most)
    return found


def seeds_alone(rows: Rows) -> dict[str, Any]:
    """Settling of each seed by itself: Kaplan-Meier over the passages that could be judged."""
    whole = [row for row in rows if not row["failed"]]
    judged = [row for row in whole if row["judged"]]
    curve = kaplan_meier([r["settling_s"] for r in judged], [r["settled"] for r in judged])
    limit_s = min((row["lasts_s"] for row in judged), default=math.nan)
    return {
        "settling_s": curve.median if judged else math.nan,
        "restricted_s": curve.restricted_mean(limit_s) if judged else math.nan,
        "passages": len(whole),
        "unjudged": len(whole) - len(judged),
        "censored": sum(not row["settled"] for row in judged),
    }
