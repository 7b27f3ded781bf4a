"""Wilcoxon's test by enumeration of signs, Holm's rule by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from eval.significance import holm, wilcoxon


def by_enumeration(differences: list[float]) -> float:
    """Share of all signs of the ranks whose sum lies as far from its mean as the observed one."""
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    middle = ranks.sum() / 2
    seen = abs(ranks[np.array(differences) > 0].sum() - middle)
    sums = [
        abs(sum(rank for rank, positive in zip(ranks, signs, strict=True) if positive) - middle)
        for signs in itertools.product((False, True), repeat=len(ranks))
    ]
    return sum(far >= seen - 1e-9 for far in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [[1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 2.0, 3.0, 4.5, 6.0, -0.5], [1.0, -2.0, 3.0, -4.0]],
)
def test_wilcoxon_is_exact(differences: list[float]) -> None:
    assert wilcoxon(differences) == pytest.approx(by_enumeration(differences))


@pytest.mark.parametrize("differences", [[1.0, 1.0, -1.0, 2.0, 2.0], [0.1] * 5 + [-0.1, 0.3, 0.3]])
def test_ties_share_a_rank_as_scipy_has_it(differences: list[float]) -> None:
    assert wilcoxon(differences) == pytest.approx(float(stats.wilcoxon(differences).pvalue))


def test_five_of_five_do_not_reach_five_per_cent() -> None:
    assert wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 / 32
    assert wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == 2 / 64


def test_what_differs_nowhere_and_what_is_not_there() -> None:
    assert wilcoxon([0.0, 0.0]) == 1.0
    assert math.isnan(wilcoxon([]))
    assert wilcoxon([0.0, 1.0, 2.0, math.nan, 3.0, 4.0, 5.0]) == 2 / 32


def test_holm_by_hand() -> None:
    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.5 x 1; none below the one before it.
    assert holm([0.5, 0.03, 0.01, 0.02]) == [0.5, 0.06, 0.04, 0.06]
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_leaves_out_what_is_no_number() -> None:
    found = holm([math.nan, 0.02, 0.04])
    assert math.isnan(found[0])
    assert found[1:] == [0.04, 0.04]
