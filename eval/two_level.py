"""An interval for what was trained several times: over trainings as well as over instances.

Another training would be another controller, and other arrivals other scores. Instances are common
to all trainings, so in a resample all chosen trainings are scored on the same chosen instances:
resampling them anew for every training would average their shared luck away.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import numpy as np
from scipy import stats

from engine.protocol import Floats, Ints
from eval.statistics import DRAWS, Interval, Statistic, grouped, interquartile_mean

ByIndex: TypeAlias = "Callable[[Ints, Ints], Floats]"
"""The statistic [draws] of chosen trainings [draws, T] on chosen instances [draws, S]."""


def two_level_interval(
    values: Floats,
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
    strata: Sequence[Hashable] | None = None,
    statistic: Statistic = interquartile_mean,
) -> Interval:
    """`statistic` of `values` [trainings, instances], with the interval of `resampled_at`.

    Raises ValueError for values of another shape.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values of shape {values.shape}; expected [trainings, instances]")

    def chosen(trainings: Ints, instances: Ints) -> Floats:
        picked = values[trainings[:, :, None], instances[:, None, :]]
        return statistic(picked.reshape(len(picked), -1))

    return resampled_at(chosen, values.shape, rng, level, draws, strata)


def resampled_at(
    values: ByIndex,
    counts: tuple[int, ...],
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
    strata: Sequence[Hashable] | None = None,
) -> Interval:
    """Percentiles with both levels drawn anew, instances within `strata`, widened for few of them.

    `counts` are of trainings and instances. It is widened to hold Student's t with the variance
    that each level has by itself, a few values' understatement of it mended as a mean's is
    (`eval.statistics.interval_of`), and Satterthwaite's degrees of freedom. A single training is
    taken as it is: then nothing is said of others. Unbounded where a stratum has one instance.
    """
    trainings, instances = counts
    places = grouped(np.arange(instances), strata)
    who = rng.integers(trainings, size=(draws, trainings))
    where = np.concatenate([p[rng.integers(len(p), size=(draws, len(p)))] for p in places], axis=1)
    all_who, all_where = np.arange(trainings)[None], np.concatenate(places)[None]
    value = float(values(all_who, all_where)[0])
    if min(map(len, places)) < 2 or not np.isfinite(value):
        return Interval(value, -np.inf, np.inf, trainings)
    # Of each level its resamples alone, values a group and degrees of freedom.
    levels = [(values(all_who, where), instances / len(places), instances - len(places))]
    if trainings > 1:
        levels.insert(0, (values(who, all_where), trainings, trainings - 1))
    variances = np.array([v[np.isfinite(v)].var() * n / (n - 1.0) for v, n, _ in levels])
    total = float(variances.sum())
    tail = (1.0 - level) / 2.0
    low, high = _percentiles(values(who, where), tail)
    if total == 0.0:
        return Interval(value, low, high, trainings)
    freedom = total**2 / float((variances**2 / np.array([f for _, _, f in levels])).sum())
    reach = float(stats.t.ppf(1.0 - tail, freedom)) * total**0.5
    return Interval(value, min(low, value - reach), max(high, value + reach), trainings)


def _percentiles(resampled: Floats, tail: float) -> tuple[float, float]:
    """Both ends. A ratio's resamples may be infinite, and between such nothing is interpolated."""
    known = resampled[~np.isnan(resampled)]
    if np.isfinite(known).all():
        low, high = np.quantile(known, [tail, 1.0 - tail])
    else:
        low = np.quantile(known, tail, method="lower")
        high = np.quantile(known, 1.0 - tail, method="higher")
    return float(low), float(high)
