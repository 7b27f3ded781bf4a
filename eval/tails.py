"""What a mean hides: the worst runs, and how many runs reach a score at all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from engine.protocol import Floats
from eval.statistics import DRAWS, Interval, Statistic, mean_interval

WORST = 0.05


def conditional_value_at_risk(samples: Floats, share: float = WORST) -> Floats:
    """Mean of the worst `share` of the values along the last axis; of scores, the lowest.

    A value that the share cuts counts with the part that is within (Rockafellar and Uryasev 2000),
    so that the share of 1 is the mean. Raises ValueError for a share out of (0, 1].
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share {share}; expected a number above 0, to 1")
    ordered = np.sort(samples, axis=-1)
    within = share * ordered.shape[-1]
    weights = np.clip(within - np.arange(ordered.shape[-1]), 0.0, 1.0)
    return np.asarray((ordered * weights).sum(axis=-1) / within)


def performance_profile(
    values: Sequence[float] | Floats,
    thresholds: Sequence[float],
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
    strata: Sequence[Hashable] | None = None,
) -> list[Interval]:
    """Share of runs with a score above each threshold, each with an interval of its own.

    Where one controller's curve is above another's, more of its runs reach that score (Dolan and
    Moré 2002). `values` [runs], `strata` as in `eval.statistics.mean_interval`.
    """

    def above(threshold: float) -> Statistic:
        return lambda samples: np.asarray((samples > threshold).mean(axis=-1))

    return [
        mean_interval(values, rng, level, draws, strata, above(threshold))
        for threshold in thresholds
    ]
