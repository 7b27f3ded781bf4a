"""Statistics of reports against brute force: all resamples, all pairs, all thresholds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from engine.protocol import Floats, Ints
from eval.improvement import probability_of_improvement
from eval.significance import hodges_lehmann
from eval.statistics import interquartile_mean, mean, mean_interval, resampled
from eval.tails import conditional_value_at_risk, performance_profile
from eval.two_level import resampled_at, two_level_interval

SCORES = st.lists(st.floats(-100, 100), min_size=1, max_size=12)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(SCORES)
@settings(max_examples=60, deadline=None)
def test_the_interquartile_mean_by_hand(values: list[float]) -> None:
    cut = int(0.25 * len(values))
    kept = sorted(values)[cut : len(values) - cut]
    assert float(interquartile_mean(np.array(values))) == pytest.approx(sum(kept) / len(kept))


def test_resampling_within_strata_is_all_that_may_come_up() -> None:
    groups = [np.array([0.0, 1.0]), np.array([10.0, 14.0])]
    found = resampled(groups, generator(), 20_000, mean)
    exact = [
        np.mean([*a, *b])
        for a in itertools.product(groups[0], repeat=2)
        for b in itertools.product(groups[1], repeat=2)
    ]
    assert set(found.tolist()) == set(exact)
    assert found.mean() == pytest.approx(np.mean(exact), abs=0.03)
    assert found.std() == pytest.approx(np.std(exact), rel=0.03)


def test_pieces_strata_and_pairs_are_resampled_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = generator(3)
    groups = [rng.normal(size=(2, size)) for size in (3, 3, 3)]
    whole = resampled(groups, generator(), 50, mean)
    alone = resampled([group[0] for group in groups], generator(), 50, mean)
    assert whole.shape == (2, 50) and np.array_equal(whole[0], alone)
    one_by_one = np.concatenate(
        [g[0][rng.integers(3, size=(50, 3))] for rng in [generator()] for g in groups], axis=1
    )
    assert np.array_equal(alone, one_by_one.mean(axis=1))  # however it is drawn, the same draws
    monkeypatch.setattr("eval.statistics.AT_ONCE", 20)
    assert resampled(groups, generator(), 50, mean).shape == (2, 50)


def test_two_levels_are_as_wide_as_all_resamples_say() -> None:
    values = np.array([[1.0, 5.0, 6.0], [2.0, 9.0, 4.0], [0.0, 2.0, 3.0]])
    every = [np.array(choice) for choice in itertools.product(range(3), repeat=3)]
    by_training = np.var([values[who].mean() for who in every]) * 3 / 2
    by_instance = np.var([values[:, where].mean() for where in every]) * 3 / 2
    total = by_training + by_instance
    freedom = total**2 / (by_training**2 / 2 + by_instance**2 / 2)
    reach = float(stats.t.ppf(0.975, freedom)) * total**0.5
    found = two_level_interval(values, generator(), draws=20_000, statistic=mean)
    assert found.mean == pytest.approx(values.mean()) and found.seeds == 3
    assert found.high - found.mean == pytest.approx(reach, rel=0.03)
    both = [values[np.ix_(who, where)].mean() for who in every for where in every]
    assert found.high > np.quantile(both, 0.975)


def test_single_instances_show_nothing_and_strata_stay_apart() -> None:
    assert not np.isfinite(two_level_interval(np.ones((4, 1)), generator()).high)
    values = np.array([[0.0, 0.0, 50.0, 50.0]] * 3)  # all that differs is the stratum
    found = two_level_interval(values, generator(), strata="aabb", statistic=mean, draws=200)
    assert (found.low, found.high) == (25.0, 25.0)
    with pytest.raises(ValueError, match="trainings, instances"):
        two_level_interval(np.ones(3), generator())


def test_resamples_of_a_ratio_without_end_have_no_upper_end() -> None:
    below = np.array([[0.0, 0.0, 0.0, 4.0]] * 2)

    def ratio(who: Ints, where: Ints) -> Floats:
        picked = below[who[:, :, None], where[:, None, :]].sum(axis=(1, 2))
        return np.divide(4.0, picked, out=np.full(len(picked), np.inf), where=picked > 0)

    found = resampled_at(ratio, (2, 4), generator())
    assert found.mean == 0.5 and found.high == np.inf and 0.0 <= found.low < 0.5


@given(SCORES, SCORES)
@settings(max_examples=40, deadline=None)
def test_the_probability_of_improvement_counts_all_pairs(x: list[float], y: list[float]) -> None:
    wins = sum((a > b) + 0.5 * (a == b) for a in x for b in y)
    found = probability_of_improvement([np.array(x)], [np.array(y)], generator(), draws=20)
    assert found.mean == pytest.approx(wins / (len(x) * len(y)))


def test_the_probability_of_improvement_is_the_mean_over_strata() -> None:
    ours, theirs = [np.array([2.0, 3.0]), np.array([0.0])], [np.array([1.0]), np.array([0.0, 5.0])]
    assert probability_of_improvement(ours, theirs, generator()).mean == (1.0 + 0.25) / 2
    nothing = probability_of_improvement([np.array([np.nan])], [np.ones(1)], generator())
    assert np.isnan(nothing.mean) and nothing.seeds == 0
    with pytest.raises(ValueError, match="the same ones"):
        probability_of_improvement(ours, theirs[:1], generator())


def test_probability_of_improvement_of_the_same_law_holds_one_half_as_often_as_it_says() -> None:
    rng, held = generator(2), 0
    for _ in range(100):
        x, y = rng.normal(size=(2, 20))
        found = probability_of_improvement([x], [y], rng, draws=300)
        held += found.low <= 0.5 <= found.high
    assert 88 <= held <= 100


@given(SCORES)
@settings(max_examples=40, deadline=None)
def test_hodges_lehmann_is_the_median_of_all_means_of_two(values: list[float]) -> None:
    means = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert hodges_lehmann(values) == pytest.approx(np.median(means))


@given(SCORES, st.booleans())
@settings(max_examples=40, deadline=None)
def test_of_many_values_it_is_found_without_all_pairs(values: list[float], ties: bool) -> None:
    values = [round(value, 0) for value in values] if ties else values
    whole = hodges_lehmann(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eval.significance.MOST_PAIRS", 0)
        assert hodges_lehmann(values) == pytest.approx(whole, abs=1e-9)


def test_hodges_lehmann_of_nothing() -> None:
    assert np.isnan(hodges_lehmann([np.nan]))


@given(SCORES, st.sampled_from([0.05, 0.2, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_the_worst_share_by_a_thousand_copies(values: list[float], share: float) -> None:
    copies = sorted(v for v in values for _ in range(100))
    worst = copies[: round(share * len(copies))]
    found = conditional_value_at_risk(np.array([values, values]), share)
    assert found == pytest.approx([np.mean(worst)] * 2, abs=1e-9)


def test_a_share_out_of_range_is_a_bug() -> None:
    with pytest.raises(ValueError, match="above 0"):
        conditional_value_at_risk(np.ones(3), 0.0)


def test_a_profile_counts_who_is_above() -> None:
    values = [0.1, 0.4, 0.4, 0.9]
    found = performance_profile(values, [0.0, 0.4, 0.9], generator())
    assert [interval.mean for interval in found] == [1.0, 0.25, 0.0]
    assert found[1].low < 0.25 < found[1].high


def test_an_interquartile_interval_in_strata_covers() -> None:
    rng, covered, shift = generator(5), 0, np.repeat([0.0, 10.0, 20.0, 30.0], 5)
    strata = np.repeat(range(4), 5).tolist()
    for _ in range(150):
        values = shift + rng.normal(size=20)
        found = mean_interval(values, rng, draws=300, strata=strata, statistic=interquartile_mean)
        covered += found.low <= 15.0 <= found.high
    assert covered >= 135
