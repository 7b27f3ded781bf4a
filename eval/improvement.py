"""How likely a run of one controller is better than a run of another: P(X > Y), ties a half each.

It says how often, where a mean says how much. By stratum (workloads, cells) it is Mann and
Whitney's U over n · m, then the mean over strata (Agarwal et al., NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.protocol import Floats
from eval.statistics import AT_ONCE, DRAWS, Interval

LEVEL = 0.95


def probability_of_improvement(
    ours: Sequence[Floats],
    theirs: Sequence[Floats],
    rng: np.random.Generator,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> Interval:
    """P(X > Y) of values by stratum, with its percentile bootstrap interval; ½ shows nothing.

    Both sides are resampled within each stratum, each by itself, so that their numbers may differ.
    nan are left out, and strata where a side has nothing. `seeds` counts our values. Raises
    ValueError for different numbers of strata.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} strata against {len(theirs)}; expected the same ones")
    known = [(x[~np.isnan(x)], y[~np.isnan(y)]) for x, y in zip(ours, theirs, strict=True)]
    pairs = [(x, y) for x, y in known if len(x) and len(y)]
    if not pairs:
        return Interval(float("nan"), -np.inf, np.inf, 0)
    sizes = dict.fromkeys((len(x), len(y)) for x, y in pairs)
    total, estimate = np.zeros(draws), 0.0
    for size in sizes:  # strata of a size together: a matrix has thousands
        alike = [(x, y) for x, y in pairs if (len(x), len(y)) == size]
        x, y = np.stack([x for x, _ in alike])[:, :, None], np.stack([y for _, y in alike])[:, None]
        better = (x > y) + 0.5 * (x == y)  # [strata, n, m]
        estimate += float(better.mean(axis=(1, 2)).sum())
        at_once = max(AT_ONCE // better.size, 1)
        for start in range(0, draws, at_once):
            stop = min(start + at_once, draws)
            total[start:stop] += _resampled(better, stop - start, rng)
    tail = (1.0 - level) / 2.0
    low, high = (float(q) for q in np.quantile(total / len(pairs), [tail, 1.0 - tail]))
    return Interval(estimate / len(pairs), low, high, sum(len(x) for x, _ in pairs))


def _resampled(better: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """[draws] sums over the strata of what resampled values of both sides come to."""
    strata, ours, theirs = better.shape
    mine = rng.integers(ours, size=(draws, strata, ours, 1))
    other = rng.integers(theirs, size=(draws, strata, 1, theirs))
    picked = better[np.arange(strata)[:, None, None], mine, other]
    return np.asarray(picked.mean(axis=(2, 3)).sum(axis=1))
