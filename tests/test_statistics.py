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
    assert 0.9 <= covered / trials <= 0.995  # wider than it says would be as wrong


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


# -- other statistics, strata, ratios --------------------------------------------------------------


def test_interquartile_mean_by_hand() -> None:
    # Of eight values the two lowest and the two highest go: (3 + 4 + 5 + 6) / 4.
    values = np.array([9.0, 1.0, 4.0, 1000.0, 3.0, 6.0, 5.0, 2.0])
    assert statistics.interquartile_mean(values) == 4.5
    # Of five, a quarter is one at either end.
    assert statistics.interquartile_mean(np.array([0.0, 1.0, 2.0, 6.0, 99.0])) == 3.0
    found = statistics.mean_interval(values, generator(), statistic=statistics.interquartile_mean)
    assert found.mean == 4.5
    assert found.low < 4.5 < found.high


def test_interquartile_interval_covers() -> None:
    rng = generator(5)
    trials, shift = 200, 0.7
    covered = 0
    for _ in range(trials):
        values = rng.normal(shift, 1.0, 8)
        found = statistics.mean_interval(
            values, rng, draws=300, statistic=statistics.interquartile_mean
        )
        covered += found.low <= shift <= found.high
    assert 0.9 <= covered / trials <= 0.995  # wider than it says would be as wrong


def test_bootstrap_by_enumeration() -> None:
    """Three values: all 27 resamples have known means, whose quantiles the draws must find."""
    values = [0.0, 3.0, 9.0]
    means = [(a + b + c) / 3 for a in values for b in values for c in values]
    low, high = np.quantile(means, [0.1, 0.9])
    found = statistics.mean_interval(values, generator(), level=0.8, draws=40_000)
    reach = 1.8856 * np.std(values, ddof=1) / np.sqrt(3)  # Student's t of 2 degrees, 90 %
    assert found.low == pytest.approx(min(low, 4.0 - reach), abs=0.05)
    assert found.high == pytest.approx(max(high, 4.0 + reach), abs=0.05)


def test_strata_widen_nothing_by_lying_apart() -> None:
    values = [1.0, 1.2, 0.8, 101.0, 101.2, 100.8]
    apart = statistics.mean_interval(values, generator(), strata=["low"] * 3 + ["high"] * 3)
    mixed = statistics.mean_interval(values, generator())
    assert apart.mean == mixed.mean == 51.0
    assert apart.high - apart.low < 0.5
    assert mixed.high - mixed.low > 50.0
    # Their own spread still shows, and a stratum of one hides it.
    assert apart.low < 51.0 < apart.high
    alone = statistics.mean_interval(values[:4], generator(), strata=["low"] * 3 + ["high"])
    assert (alone.low, alone.high) == (-math.inf, math.inf)


def test_stratified_interval_covers_as_often_as_it_says() -> None:
    rng = generator(11)
    trials = 400
    covered = 0
    strata = ["a"] * 3 + ["b"] * 5 + ["c"] * 4
    truth = np.array([0.0] * 3 + [10.0] * 5 + [-4.0] * 4)
    for _ in range(trials):
        found = statistics.mean_interval(truth + rng.normal(0, 1, 12), rng, 0.95, 400, strata)
        covered += found.low <= truth.mean() <= found.high
    assert 0.9 <= covered / trials <= 0.995


def test_strata_follow_the_values_that_are_left() -> None:
    values = [1.0, math.nan, 1.4, 9.0, 9.2]
    found = statistics.mean_interval(values, generator(), strata=["a", "a", "a", "b", "b"])
    assert found.seeds == 4
    assert found.mean == pytest.approx((1.0 + 1.4 + 9.0 + 9.2) / 4)
    with pytest.raises(ValueError, match="longer than"):
        statistics.mean_interval([1.0, 2.0], generator(), strata=["a"])


def test_paired_difference_within_strata() -> None:
    ours = [1.1, 1.2, 1.15, 51.1, 51.2, 51.15]
    theirs = [1.0, 1.0, 1.0, 51.0, 51.0, 51.0]
    found = statistics.paired_difference(ours, theirs, generator(), strata=[0, 0, 0, 1, 1, 1])
    assert found.mean == pytest.approx(0.15)
    assert found.excludes_zero
    back = statistics.paired_difference(theirs, ours, generator(), strata=[0, 0, 0, 1, 1, 1])
    assert back.high < 0


def test_violation_ratio_by_hand() -> None:
    # 60 of the baseline's to 40 of ours.
    found = statistics.violation_ratio([20, 22, 18], [13, 14, 13], generator())
    assert found is not None
    assert found.mean == 1.5
    assert 1.0 < found.low < 1.5 < found.high
    same = statistics.violation_ratio([20, 10, 30], [20, 10, 30], generator())
    assert same is not None and (same.low, same.mean, same.high) == (1.0, 1.0, 1.0)


def test_too_few_violations_show_no_ratio() -> None:
    assert statistics.violation_ratio([900, 900], [10, 19], generator()) is None  # 29
    assert statistics.violation_ratio([900, 900], [10, 20], generator()) is not None
    assert statistics.violation_ratio([900], [40], generator()) is None
    with pytest.raises(ValueError, match="2 and 1 seeds"):
        statistics.violation_ratio([1, 2], [40], generator())


def test_a_ratio_without_an_upper_end_says_so() -> None:
    # A third of the resamples or so holds no violation of ours at all.
    found = statistics.violation_ratio([50, 50, 50], [40, 0, 0], generator())
    assert found is not None
    assert found.high == math.inf
    assert found.low >= 0


def test_violation_ratio_covers() -> None:
    rng = generator(2)
    trials = 300
    covered = 0
    for _ in range(trials):
        hardness = rng.uniform(5, 15, 8)
        found = statistics.violation_ratio(
            rng.poisson(2 * hardness).tolist(), rng.poisson(hardness).tolist(), rng, draws=300
        )
        assert found is not None
        covered += found.low <= 2.0 <= found.high
    assert 0.9 <= covered / trials <= 0.995  # wider than it says would be as wrong


def test_an_interval_reaches_no_further_than_its_figure_and_stays_open_where_it_is() -> None:
    assert Interval(0.5, -0.2, 1.4, 3).within(0.0, 1.0) == Interval(0.5, 0.0, 1.0, 3)
    assert Interval(2.0, -1.0, 9.0, 3).within(0.0) == Interval(2.0, 0.0, 9.0, 3)
    unbounded = Interval(0.5, -math.inf, math.inf, 1)
    assert unbounded.within(0.0, 1.0) == unbounded
