"""An interval for what was trained several times: over trainings as well as over instances.

Another training would be another controller, and other arrivals other scores. Instances are common
to all trainings, so in a resample all chosen trainings are scored on the same chosen instances:
resampling them anew for every training would average their shared luck away.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from engine.protocol import Floats
from eval.statistics import (
    DRAWS,
    Interval,
    Statistic,
    grouped,
    interquartile_mean,
    interval_of,
)


def two_level_interval(
    values: Floats,
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
    strata: Sequence[Hashable] | None = None,
    statistic: Statistic = interquartile_mean,
) -> Interval:
    """`statistic` of `values` [trainings, instances], with its percentile bootstrap interval.

    A draw takes as many trainings as there are, then within each of the `strata` [instances] as
    many instances as it holds. It is widened for few trainings as a mean's interval is for few
    seeds (`eval.statistics.interval_of`), and unbounded for a single one. `seeds` of the interval
    counts trainings. Raises ValueError for values of another shape.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values of shape {values.shape}; expected [trainings, instances]")
    trainings, instances = values.shape
    places = grouped(np.arange(instances), strata)
    estimates = np.empty(draws)
    for draw in range(draws):
        who = rng.integers(trainings, size=trainings)
        where = np.concatenate([p[rng.integers(len(p), size=len(p))] for p in places])
        estimates[draw] = statistic(values[np.ix_(who, where)].reshape(-1))
    estimate = float(statistic(values.reshape(-1)))
    return interval_of(estimate, estimates, trainings, 1, level)
