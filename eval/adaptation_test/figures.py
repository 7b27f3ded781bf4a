"""Figures of a controller over seeds: each of one disturbance, and of all of them together.

The unit is the seed. Of a disturbance, what several changes brought is put together within the
seed first; of all, the mean over the disturbances is. Settling times are censored, so theirs are
Kaplan-Meier's median and restricted mean (`eval.survival`), resampled over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eval.parts import figure
from eval.statistics import Interval, mean_interval
from eval.survival import kaplan_meier

DRAWS = 1000  # resamples of seeds for a settling time
Rows = Sequence[Mapping[str, Any]]
"""Of one controller and disturbance, failed ones left out."""


class Figure(NamedTuple):
    """A figure of the rows of one seed."""

    name: str
    title: str
    of: Callable[[Rows], float]


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
    Figure("regret", "regret, % of the oracle's tokens", _share("regret_tokens")),
    Figure("transient", "regret before it settled, %", _share("transient_regret_tokens")),
    Figure("steady", "regret after it settled, %", _share("steady_regret_tokens")),
    Figure("debt", "SLO debt, % of the oracle's tokens", _share("debt_tokens")),
    Figure("debt_tokens", "SLO debt, tokens a change", _mean("debt_tokens")),
    Figure("excess_s", "excess time over the oracle, s", _mean("excess_s")),
    Figure("undershoot", "undershoot, % of the oracle's level", _mean("undershoot", 100.0)),
    Figure("violations", "misses in transition, a change", _mean("transition_violations")),
    Figure("churn", "changes of plan a second", _mean("churn_per_s")),
    Figure("attainment", "attainment of the run, %", _mean("attainment", 100.0)),
    Figure("goodput", "goodput of the run, tokens/s", _mean("goodput_tps")),
)


def by_seed(rows: Rows) -> dict[int, list[Mapping[str, Any]]]:
    """Rows by seed, in its order."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        found.setdefault(row["seed"], []).append(row)
    return found


def values(of: Figure, rows: Rows, seeds: Sequence[int]) -> np.ndarray:
    """[seeds] the mean over disturbances of the figure; nan where a seed has none."""
    grouped = by_seed(rows)
    found = []
    for seed in seeds:
        by_disturbance: dict[str, list[Mapping[str, Any]]] = {}
        for row in grouped.get(seed, []):
            by_disturbance.setdefault(row["disturbance"], []).append(row)
        known = [x for part in by_disturbance.values() if not math.isnan(x := of.of(part))]
        found.append(float(np.mean(known)) if known else math.nan)
    return np.array(found, np.float64)


def figures_of(rows: Rows, seeds: Sequence[int]) -> dict[str, Any]:
    """Every figure with its interval; the rows are of one controller."""
    whole = [row for row in rows if not row["failed"]]
    found: dict[str, Any] = {
        of.name: figure(mean_interval(values(of, whole, seeds), np.random.default_rng(0)))
        for of in FIGURES
    }
    judged = [row for row in whole if row["judged"]]
    return {
        **found,
        **settling(judged),
        "changes": len(whole),
        "unjudged": len(whole) - len(judged),
        "censored": sum(not row["settled"] for row in judged),
        "excess_censored": sum(row["excess_censored"] for row in judged),
        "failed": sorted({f"{row['failed']}" for row in rows if row["failed"]}),
    }


def settling(judged: Rows) -> dict[str, Any]:
    """Median and restricted mean of the settling time with intervals, and the limit of the latter.

    The limit is the shortest stretch: beyond it nothing was seen of some. A median that is never
    reached is null, as is a bound of it.
    """
    if not judged:
        nothing = Interval(math.nan, math.nan, math.nan, 0)
        return {"settling_s": figure(nothing), "restricted_s": figure(nothing), "limit_s": math.nan}
    limit_s = min(row["lasts_s"] for row in judged)
    groups = [
        np.array([(row["settling_s"], row["settled"]) for row in rows], np.float64)
        for rows in by_seed(judged).values()
    ]

    def both(chosen: Sequence[np.ndarray]) -> tuple[float, float]:
        times, settled = np.concatenate(chosen).T
        curve = kaplan_meier(times.tolist(), settled.astype(np.bool_).tolist())
        return curve.median, curve.restricted_mean(limit_s)

    rng = np.random.default_rng(0)
    drawn = [
        both([groups[i] for i in rng.integers(len(groups), size=len(groups))])
        for _ in range(DRAWS if len(groups) > 1 else 0)
    ]
    found = {"limit_s": limit_s}
    for i, name in enumerate(("settling_s", "restricted_s")):
        low, high = _bounds([pair[i] for pair in drawn])
        found[name] = figure(Interval(both(groups)[i], low, high, len(groups)))  # type: ignore[assignment]
    return found


def _bounds(drawn: Sequence[float]) -> tuple[float, float]:
    """95 % of the resampled, whole entries of it: between infinite ones nothing is interpolated."""
    if not drawn:
        return -math.inf, math.inf
    low = float(np.quantile(drawn, 0.025, method="lower"))
    return low, float(np.quantile(drawn, 0.975, method="higher"))
