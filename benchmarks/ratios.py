"""Ratios of sums with an interval: the unit that is resampled is the request or the prompt.

eval.statistics gives intervals of means over seeds; a ratio of two sums needs its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from engine.protocol import Floats

DRAWS = 2000
LEVEL = 0.95


class Ratio(NamedTuple):
    """A ratio and where it may lie (95 %); bounds are nan when one unit says nothing."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        bounds = "" if np.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{bounds}"


def of_sums(over: Floats, under: Floats, rng: np.random.Generator) -> Ratio:
    """Σ over ÷ Σ under, both [units], resampled over units."""
    return bootstrap(
        np.stack((over, under), axis=-1), lambda sums: sums[..., 0] / sums[..., 1], rng
    )


def of_rates(
    tokens: Floats,
    seconds: Floats,
    other_tokens: Floats,
    other_seconds: Floats,
    rng: np.random.Generator,
) -> Ratio:
    """(Σ tokens ÷ Σ seconds) over the same of the other, all [units] and paired by unit."""
    columns = np.stack((tokens, seconds, other_tokens, other_seconds), axis=-1)
    return bootstrap(columns, lambda s: (s[..., 0] / s[..., 1]) / (s[..., 2] / s[..., 3]), rng)


def bootstrap(
    columns: Floats, statistic: Callable[[Floats], Floats], rng: np.random.Generator
) -> Ratio:
    """`statistic` of the column sums of `columns` [units, k], with its percentile interval.

    `statistic` takes sums [..., k] to values [...].
    """
    columns = np.asarray(columns, dtype=np.float64)
    count = len(columns)
    if count == 0:
        return Ratio(float("nan"), float("nan"), float("nan"))
    value = float(statistic(columns.sum(0)))
    if count == 1:
        return Ratio(value, float("nan"), float("nan"))
    draws = columns[rng.integers(count, size=(DRAWS, count))].sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(draws)
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.nanquantile(values, [tail, 1.0 - tail])
    return Ratio(value, float(low), float(high))
