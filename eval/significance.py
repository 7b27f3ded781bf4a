"""Wilcoxon's signed-rank test over paired seeds, held together over comparisons by Holm's rule.

A second opinion beside the intervals of `eval.statistics`: it asks only which side a difference
falls on and in what order of size, so that one wild seed moves it little. The effect that belongs
to it is Hodges and Lehmann's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from engine.protocol import Floats

FEW = 13  # differences: SciPy's own limit for trying all signs
MOST_PAIRS = 100_000
ROUNDING = 1e-9  # of sums of ranks, which are halves


def wilcoxon(differences: Sequence[float] | Floats) -> float:
    """Two-sided p-value of paired differences [seeds]; 1 when nothing differs, nan of no seeds.

    Zeros and what is not finite are left out. Exact for few seeds; for more, with ties, normal.
    """
    sample = np.asarray(differences, dtype=np.float64)
    if not len(sample):
        return float("nan")
    sample = sample[np.isfinite(sample) & (sample != 0)]
    if len(sample) > FEW:
        return float(stats.wilcoxon(sample).pvalue)
    return _by_all_signs(sample) if len(sample) else 1.0


def _by_all_signs(sample: Floats) -> float:
    """Share of all signs of the ranks under which their sum is as far out; ties share a rank.

    What SciPy does where there are ties, in a thousandth of its time.
    """
    ranks = stats.rankdata(np.abs(sample))
    signs = np.arange(2 ** len(sample))[:, None] >> np.arange(len(sample)) & 1
    off = np.abs(signs @ ranks - ranks.sum() / 2.0)
    seen = abs(float(ranks[sample > 0].sum()) - float(ranks.sum()) / 2.0)
    return float(np.mean(off >= seen - ROUNDING))


def hodges_lehmann(differences: Sequence[float] | Floats) -> float:
    """The shift that the test is about: median of the means of all pairs, each with itself too.

    Of paired differences [seeds]; what is not finite is left out, nan of nothing (Hodges and
    Lehmann 1963).
    """
    sample = np.asarray(differences, dtype=np.float64)
    sample = sample[np.isfinite(sample)]
    if not len(sample):
        return float("nan")
    pairs = len(sample) * (len(sample) + 1) // 2
    if pairs <= MOST_PAIRS:
        one, other = np.triu_indices(len(sample))
        return float(np.median((sample[one] + sample[other]) / 2.0))
    ordered = np.sort(sample)
    middle = [_smallest_mean(ordered, place) for place in {(pairs + 1) // 2, pairs // 2 + 1}]
    return float(np.mean(middle))


def _smallest_mean(ordered: Floats, place: int) -> float:
    """The mean of a pair of ascending values that `place` of all means are not above.

    By halving where it may lie: thousands of cells have too many pairs to write down.
    """
    low, high = float(ordered[0]), float(ordered[-1])
    own = np.arange(len(ordered))
    while low < (middle := low + (high - low) / 2.0) < high:
        not_above = ordered.searchsorted(2.0 * middle - ordered, side="right")
        if int(np.maximum(not_above - own, 0).sum()) >= place:
            high = middle
        else:
            low = middle
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979), in the order given; nan stays nan.

    The smallest times m, the next times m - 1 and so on, none below the one before it, at most 1.
    """
    known = [i for i, p in enumerate(p_values) if not np.isnan(p)]
    adjusted = [float("nan")] * len(p_values)
    reached = 0.0
    for passed, index in enumerate(sorted(known, key=lambda i: p_values[i])):
        reached = max(reached, min((len(known) - passed) * p_values[index], 1.0))
        adjusted[index] = reached
    return adjusted
