"""Intervals over paired seeds, and what may be said in words about a difference.

The unit is the seed: each controller served the same arrivals, so differences are taken within a
seed and resampled over seeds, within strata where there are several (workloads, regimes, loads).
Nothing here ranks without an interval. Tests of significance are `eval.significance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from engine.protocol import Floats

DRAWS = 2000  # resamples for a report (research/rl_toolkits.md §3.5)
TRIMMED = 0.25  # of the values, at either end of an interquartile mean
AT_ONCE = 4_000_000  # values that are resampled together
FEWEST_VIOLATIONS = 30  # in a ratio's denominator (ALGORITHMS.md §10)

Statistic = Callable[[Floats], Floats]
"""Of samples [..., values] along the last axis."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and where it may lie; infinite bounds when one seed says nothing."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign of the mean is shown."""
        return self.low > 0 or self.high < 0

    def within(self, least: float = -math.inf, most: float = math.inf) -> Interval:
        """With ends no further than the figure itself can go; an end that is open stays open."""
        ends = (self.low, self.high)
        low, high = (min(max(e, least), most) if math.isfinite(e) else e for e in ends)
        return replace(self, low=low, high=high)


def mean(samples: Floats) -> Floats:
    """Plain mean."""
    return np.asarray(samples.mean(axis=-1))


def interquartile_mean(samples: Floats) -> Floats:
    """Mean of what is left when a quarter of the values is cut at either end (rounded down).

    As robust as a median nearly, and it uses half of the values (Agarwal et al., NeurIPS 2021).
    """
    return np.asarray(stats.trim_mean(samples, TRIMMED, axis=-1))


def mean_interval(
    values: Sequence[float] | Floats,
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
    strata: Sequence[Hashable] | None = None,
    statistic: Statistic = mean,
) -> Interval:
    """Mean, or another `statistic`, of `values` [seeds] with its percentile bootstrap interval.

    With `strata` [seeds] every resample draws within each stratum as many as it holds, so that what
    sets strata apart widens nothing. A percentile bootstrap of a few seeds covers too little (where
    95 % is claimed, about 80 % at four seeds and 89 % at twelve), so it is widened to hold the
    interval of Student's t as well: its standard error is the bootstrap's, times √(n / (n - 1)) for
    n seeds a stratum, its degrees of freedom are the seeds less the strata.

    Entries that are nan had nothing to count: they are left out, and `seeds` says how many
    remained. One infinite entry makes the mean infinite and the interval unbounded; so does a
    stratum of one seed, which does not show how far its seeds lie apart.
    """
    sample = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(sample)
    groups = grouped(sample[known], None if strata is None else _kept(strata, known))
    count = int(known.sum())
    if count == 0:
        return Interval(float("nan"), -np.inf, np.inf, 0)
    estimate = float(statistic(np.concatenate(groups)))
    if min(map(len, groups)) == 1 or not np.isfinite(estimate):
        return Interval(estimate, -np.inf, np.inf, count)
    estimates = resampled(groups, rng, draws, statistic)
    return interval_of(estimate, estimates, count, len(groups), level)


def resampled(
    groups: Sequence[Floats], rng: np.random.Generator, draws: int, statistic: Statistic
) -> Floats:
    """[draws] of the statistic, every draw with as many values of each group as it holds.

    Groups are [..., values]: what stands before the last axis is resampled alike, so that what is
    paired stays so, and comes out before the draws.
    """
    values = sum(group.shape[-1] for group in groups)
    rows = max(math.prod(groups[0].shape[:-1]), 1)
    at_once = max(AT_ONCE // (rows * values), 1)  # thousands of cells would fill the memory
    found = []
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        found.append(statistic(_drawn(groups, rng, count)))
    return np.concatenate(found, axis=-1)


def interval_of(
    estimate: float, estimates: Floats, count: int, groups: int, level: float
) -> Interval:
    """The percentile interval of resampled `estimates` [draws], widened as `mean_interval` says.

    `count` values were resampled in so many `groups`; unbounded where a group has one value.
    """
    a_group = count / groups
    if a_group <= 1.0 or not np.isfinite(estimate):
        return Interval(estimate, -np.inf, np.inf, count)
    tail = (1.0 - level) / 2.0
    low, high = (float(q) for q in np.quantile(estimates, [tail, 1.0 - tail]))
    error = float(estimates.std()) * math.sqrt(a_group / (a_group - 1.0))
    reach = float(stats.t.ppf(1.0 - tail, count - groups)) * error
    return Interval(estimate, min(low, estimate - reach), max(high, estimate + reach), count)


def paired_difference(
    ours: Sequence[float] | Floats,
    theirs: Sequence[float] | Floats,
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
    strata: Sequence[Hashable] | None = None,
    statistic: Statistic = mean,
) -> Interval:
    """Mean of `ours` - `theirs`, both [seeds] in the same order, with its interval.

    Another `statistic` is that of the differences. Raises ValueError for unequal lengths.
    """
    if len(ours) != len(theirs):
        raise ValueError(
            f"paired values of {len(ours)} and {len(theirs)} seeds; expected the same seeds in both"
        )
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    return mean_interval(difference, rng, level, draws, strata, statistic)


def difference_of_means(
    ours: Sequence[Floats],
    theirs: Sequence[Floats],
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """Mean of `ours` less that of `theirs`, by stratum [values], then the mean over the strata.

    Nothing is paired: either side is resampled by itself, as two runs of a test on other seeds are.
    Widened as a mean's interval is, by Welch's degrees of freedom. Unbounded where a side has one
    value in a stratum. nan are the caller's to leave out. Raises ValueError for different numbers
    of strata, and for none.
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{len(ours)} strata against {len(theirs)}; expected the same ones")
    sides = [[np.asarray(g, np.float64) for g in side] for side in (ours, theirs)]
    estimate = float(np.mean([x.mean() - y.mean() for x, y in zip(*sides, strict=True)]))
    count = sum(len(group) for side in sides for group in side)
    if min(len(group) for side in sides for group in side) < 2 or not np.isfinite(estimate):
        return Interval(estimate, -np.inf, np.inf, count)
    estimates = np.mean(
        [_means(x, rng, draws) - _means(y, rng, draws) for x, y in zip(*sides, strict=True)], axis=0
    )
    tail = (1.0 - level) / 2.0
    low, high = (float(q) for q in np.quantile(estimates, [tail, 1.0 - tail]))
    parts = [(len(g), float(g.var(ddof=1)) / len(g)) for side in sides for g in side]
    variance = sum(part for _, part in parts)
    freedom = variance**2 / (sum(part**2 / (n - 1) for n, part in parts) or np.inf)
    error = math.sqrt(variance) / len(ours)
    reach = float(stats.t.ppf(1.0 - tail, freedom)) * error if error > 0 else 0.0
    return Interval(estimate, min(low, estimate - reach), max(high, estimate + reach), count)


def violation_ratio(
    theirs: Sequence[float] | Floats,
    ours: Sequence[float] | Floats,
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval | None:
    """Violations of a baseline over ours, both [seeds] paired: above 1 we have fewer.

    A ratio of sums, resampled over seeds, and widened as a mean's interval is (the standard error
    of a ratio by linearisation, Student's t of the seeds less one). None with fewer than 30
    violations of ours, over which nothing can be said, and with one seed.
    """
    above, below = np.asarray(theirs, dtype=np.float64), np.asarray(ours, dtype=np.float64)
    count, total = len(below), float(below.sum())
    if count != len(above):
        raise ValueError(
            f"paired counts of {len(above)} and {count} seeds; expected the same seeds in both"
        )
    if total < FEWEST_VIOLATIONS or count < 2:
        return None
    ratio = float(above.sum()) / total
    seeds = rng.integers(count, size=(draws, count))
    sums = below[seeds].sum(axis=1)
    # A resample may hold the seeds without violations only: that ratio has no upper end.
    ratios = np.divide(above[seeds].sum(axis=1), sums, out=np.full(draws, np.inf), where=sums > 0)
    tail = (1.0 - level) / 2.0
    # Whole entries of the sample, since between infinite ones nothing can be interpolated.
    low = float(np.quantile(ratios, tail, method="lower"))
    high = float(np.quantile(ratios, 1.0 - tail, method="higher"))
    error = float((above - ratio * below).std(ddof=1)) * np.sqrt(count) / total
    reach = float(stats.t.ppf(1.0 - tail, count - 1)) * error
    return Interval(ratio, max(min(low, ratio - reach), 0.0), max(high, ratio + reach), count)


def verdict(a: str, b: str, difference: Interval, metric: str, higher_is_better: bool) -> str:
    """'A beats B on metric', 'B beats A on metric' or 'A against B on metric: no difference shown'.

    `difference` is that of A - B; a side wins only where its interval excludes zero.
    """
    if not difference.excludes_zero:
        return f"{a} against {b} on {metric}: no difference shown"
    a_wins = (difference.mean > 0) == higher_is_better
    winner, loser = (a, b) if a_wins else (b, a)
    return f"{winner} beats {loser} on {metric}"


def several(level: float, comparisons: int) -> float:
    """Level of each of several intervals such that all hold together at `level` (Bonferroni)."""
    return 1.0 - (1.0 - level) / max(comparisons, 1)


def _means(group: Floats, rng: np.random.Generator, draws: int) -> Floats:
    return np.asarray(group[rng.integers(len(group), size=(draws, len(group)))].mean(axis=1))


def grouped(sample: np.ndarray, strata: Sequence[Hashable] | None) -> list[np.ndarray]:
    """The values [n] by stratum, in order of appearance; all together without strata."""
    if strata is None:
        return [sample]
    by_stratum: dict[Hashable, list[Any]] = {}
    for stratum, value in zip(strata, sample.tolist(), strict=True):
        by_stratum.setdefault(stratum, []).append(value)
    return [np.array(group) for group in by_stratum.values()]


def _drawn(groups: Sequence[Floats], rng: np.random.Generator, count: int) -> Floats:
    """[..., count, values] resampled within each group."""
    if len({group.shape for group in groups}) > 1 or len(groups) == 1:
        chosen = [g[..., rng.integers(g.shape[-1], size=(count, g.shape[-1]))] for g in groups]
        return np.concatenate(chosen, axis=-1)
    alike = np.stack(groups, axis=-2)  # [..., groups, values], the same draws in a single call
    number, size = alike.shape[-2:]
    which = rng.integers(size, size=(number, count, size))
    picked = alike[..., np.arange(number)[:, None, None], which]
    return np.moveaxis(picked, -3, -2).reshape(*alike.shape[:-2], count, number * size)


def _kept(strata: Sequence[Hashable], known: np.ndarray) -> list[Hashable]:
    return [stratum for stratum, keep in zip(strata, known.tolist(), strict=True) if keep]
