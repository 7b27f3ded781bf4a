"""Intervals that cover what they claim, and verdicts that never outrun them."""

import math

import numpy as np
import pytest

from eval import statistics
from eval.statistics import Interval


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_interval_holds_its_mean() -> None:
    found = statistics.mean_interval([1.0, 2.0, 3.0, 6.0], generator())
    assert found.mean == 3.0
    assert found.low < 3.0 < found.high
    assert found.seeds == 4


@pytest.mark.parametrize("seeds", [4, 12])
def test_interval_covers_the_true_mean_as_often_as_it_says(seeds: int) -> None:
    rng = generator(7)
    trials = 400
    covered = 0
    for _ in range(trials):
        found = statistics.mean_interval(rng.normal(5.0, 1.0, seeds), rng, draws=400)
        covered += found.low <= 5.0 <= found.high
    assert covered / trials >= 0.9


def test_one_seed_shows_nothing() -> None:
    found = statistics.mean_interval([4.0], generator())
    assert (found.mean, found.low, found.high) == (4.0, -math.inf, math.inf)
    assert not found.excludes_zero


def test_nan_is_left_out_and_infinity_is_not() -> None:
    found = statistics.mean_interval([1.0, 3.0, math.nan], generator())
    assert (found.mean, found.seeds) == (2.0, 2)
    found = statistics.mean_interval([1.0, math.inf, 3.0], generator())
    assert (found.mean, found.low, found.high) == (math.inf, -math.inf, math.inf)
    assert statistics.mean_interval([math.nan], generator()).seeds == 0


def test_equal_values_have_a_point_interval() -> None:
    found = statistics.mean_interval([2.0] * 5, generator())
    assert (found.low, found.high) == (2.0, 2.0)


def test_pairing_removes_what_seeds_share() -> None:
    rng = generator(1)
    hardness = rng.normal(0.0, 50.0, 8)
    ours, theirs = hardness + 1.0 + rng.normal(0.0, 0.1, 8), hardness
    assert statistics.paired_difference(ours, theirs, rng).excludes_zero
    assert not statistics.mean_interval(ours, rng).excludes_zero


def test_pairs_must_match() -> None:
    with pytest.raises(ValueError, match="2 and 3 seeds"):
        statistics.paired_difference([1.0, 2.0], [1.0, 2.0, 3.0], generator())


def test_same_seed_same_interval() -> None:
    values = [0.3, 0.9, 0.1, 0.7]
    assert statistics.mean_interval(values, generator(3)) == statistics.mean_interval(
        values, generator(3)
    )


@pytest.mark.parametrize(
    ("interval", "higher_is_better", "words"),
    [
        (Interval(2.0, 1.0, 3.0, 5), True, "a beats b on goodput"),
        (Interval(-2.0, -3.0, -1.0, 5), True, "b beats a on goodput"),
        (Interval(-2.0, -3.0, -1.0, 5), False, "a beats b on goodput"),
        (Interval(2.0, -0.1, 4.0, 5), True, "a against b on goodput: no difference shown"),
        (Interval(0.0, 0.0, 0.0, 5), True, "a against b on goodput: no difference shown"),
    ],
)
def test_verdict_says_what_the_interval_shows(
    interval: Interval, higher_is_better: bool, words: str
) -> None:
    assert statistics.verdict("a", "b", interval, "goodput", higher_is_better) == words


def test_several_comparisons_ask_for_wider_intervals() -> None:
    assert statistics.several(0.95, 5) == pytest.approx(0.99)
    values = [1.0, 2.0, 4.0, 5.0, 9.0]
    one = statistics.mean_interval(values, generator(), 0.95)
    five = statistics.mean_interval(values, generator(), statistics.several(0.95, 5))
    assert five.low < one.low
    assert five.high > one.high
