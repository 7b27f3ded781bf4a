"""Kaplan-Meier's curve by hand, and against the plain share where nothing is censored."""

import math

import numpy as np
import pytest

from eval.survival import kaplan_meier


def test_by_hand() -> None:
    # Settled at 1, 3 and 4 s; one was cut at 2 s. At 1 s one of four settles: 3/4 are left. At 3 s
    # one of the two still watched: 3/8. At 4 s the last.
    curve = kaplan_meier([1.0, 2.0, 3.0, 4.0], [True, False, True, True])
    assert curve.times.tolist() == [1.0, 3.0, 4.0]
    assert curve.share.tolist() == [0.75, 0.375, 0.0]
    assert curve.median == 3.0
    # 1 s at 1, 2 s at 3/4, 1 s at 3/8.
    assert curve.restricted_mean(4.0) == 1.0 + 1.5 + 0.375
    assert curve.restricted_mean(2.0) == 1.0 + 0.75


@pytest.mark.parametrize("count", range(2, 41, 2))
def test_the_median_is_where_half_have_settled(count: int) -> None:
    """Of 24 the product of shares is 0.5000000000000001 there."""
    curve = kaplan_meier([float(i) for i in range(1, count + 1)], [True] * count)
    assert curve.median == count / 2
    one_less = kaplan_meier([float(i) for i in range(1, count)], [True] * (count - 1))
    assert one_less.median == count / 2  # the middle one of an odd number


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="a time is nan"):
        kaplan_meier([1.0, math.nan], [True, False])


def test_cut_at_the_time_of_an_event_was_still_at_risk() -> None:
    assert kaplan_meier([2.0, 2.0], [True, False]).share.tolist() == [0.5]


def test_without_censoring_it_is_the_share_that_is_left() -> None:
    times = np.random.default_rng(0).integers(1, 9, 40).astype(float)
    curve = kaplan_meier(times.tolist(), [True] * 40)
    for time, share in zip(curve.times, curve.share, strict=True):
        assert share == pytest.approx((times > time).mean())
    assert curve.restricted_mean(9.0) == pytest.approx(times.mean())


def test_leaving_the_censored_out_would_flatter() -> None:
    times, settled = [1.0, 2.0, 9.0, 9.0, 9.0], [True, True, False, False, False]
    assert kaplan_meier(times, settled).median == math.inf
    assert kaplan_meier(times[:2], settled[:2]).median == 1.0


def test_none_ever_settled() -> None:
    curve = kaplan_meier([5.0, 6.0], [False, False])
    assert curve.median == math.inf
    assert curve.restricted_mean(5.0) == 5.0


def test_a_mark_for_each_time() -> None:
    with pytest.raises(ValueError, match="2 times and 1 marks"):
        kaplan_meier([1.0, 2.0], [True])
