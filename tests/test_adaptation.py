"""Settling and regret on series that can be followed by hand.

Windows are 2 s long unless said otherwise; a regime begins with the first window.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.adaptation import adaptation, reference, settling, settling_times
from eval.windows import Series

FLAT = [100.0] * 12


def series(
    tps: list[float],
    window_s: float = 2.0,
    violations: list[int] | None = None,
    changes: list[float] | None = None,
) -> Series:
    """Ten iterations a window, four ended requests."""
    count = len(tps)
    return Series(
        start_s=60.0,
        window_s=window_s,
        valid_tps=np.array(tps, np.float64),
        iterations=np.full(count, 10),
        judged=np.full(count, 4),
        violations=np.array(violations or [0] * count),
        changes=np.array(changes or [0.0] * count),
    )


def test_a_transition_by_hand() -> None:
    # The oracle makes 100 tokens/s throughout; its last quarter has no spread, so the bar is 95.
    # The controller: 20, 60, 90, then 96 (above the bar) five windows and more.
    own = series(
        [20.0, 60.0, 90.0, *[96.0] * 9],
        violations=[3, 2, 1, 1, *[0] * 8],
        changes=[4.0, 2.0, *[0.0] * 10],
    )
    found = adaptation(own, series(FLAT))
    assert found.tolerance == 0.05
    assert found.settled
    assert found.settling_s == 3 * 2.0
    assert found.settling_iterations == 30
    # Behind by 80, 40 and 10 tokens/s for 2 s each, then by 4 for nine windows.
    assert found.transient_regret_tokens == 260.0
    assert found.steady_regret_tokens == 72.0
    assert found.regret_tokens == found.debt_tokens == 332.0
    assert found.regret_share == 332 / 2400
    assert found.undershoot == 0.8
    assert found.transition_violations == 6  # of the first three windows; the fourth is settled
    assert found.churn_per_s == 6.0 / 24.0
    assert found.excess_s == 6.0 and not found.excess_censored


def test_better_than_the_oracle_is_settled_and_owes_nothing() -> None:
    found = adaptation(series([130.0] * 12), series(FLAT))
    assert (found.settled, found.settling_s, found.settling_iterations) == (True, 0.0, 0)
    assert found.regret_tokens == -720.0
    assert found.debt_tokens == found.undershoot == found.transient_regret_tokens == 0.0


def test_the_oracle_against_itself() -> None:
    noisy = series([0.0, 30.0, 90.0, 110.0, 95.0, 105.0, 100.0, 100.0, 104.0, 96.0, 101.0, 99.0])
    found = adaptation(noisy, noisy)
    assert (found.settled, found.settling_s, found.excess_s) == (True, 0.0, 0.0)
    assert found.regret_tokens == found.debt_tokens == 0.0


def test_what_backlog_costs_the_oracle_too_is_no_excess() -> None:
    # Both work off a backlog: the oracle is at its level after 2 windows, the controller after 4.
    oracle = series([10.0, 50.0, *[100.0] * 10])
    own = series([10.0, 50.0, 60.0, 60.0, *[100.0] * 8])
    found = adaptation(own, oracle)
    assert found.excess_s == 4.0
    # It kept up with the oracle for two windows only, which settles nothing.
    assert found.settling_s == 8.0
    assert found.transient_regret_tokens == found.regret_tokens == 160.0


def test_never_settled_is_censored_at_the_end_of_the_regime() -> None:
    # Now and then within the band, never for five windows.
    own = series([*[100.0] * 4, 0.0] * 2 + [100.0, 100.0])
    found = adaptation(own, series(FLAT))
    assert not found.settled and found.excess_censored
    assert found.settling_s == 24.0
    assert found.excess_s == 24.0  # a lower bound
    assert found.steady_regret_tokens == 0.0
    assert found.transient_regret_tokens == found.regret_tokens == 400.0


def test_five_windows_must_lie_within_the_regime() -> None:
    late = [*[0.0] * 8, *[100.0] * 4]
    assert not adaptation(series(late), series(FLAT)).settled
    earlier = [*[0.0] * 7, *[100.0] * 5]
    assert adaptation(series(earlier), series(FLAT)).settling_s == 14.0


def test_an_oracle_that_does_not_reach_its_level_gives_no_excess() -> None:
    # Its last quarter is high and steady, but it was there for three windows only.
    oracle = series([*[10.0] * 9, *[100.0] * 3])
    assert math.isnan(adaptation(series(FLAT), oracle).excess_s)


def test_noise_of_the_oracle_widens_the_band() -> None:
    # Last quarter of twelve: 90, 100, 110, mean 100, standard deviation 10; 2 x 10 / 100 = 20 %.
    found = reference(np.array([*[0.0] * 9, 90.0, 100.0, 110.0]))
    assert found == (100.0, 0.2)
    oracle = series([*[100.0] * 9, 90.0, 100.0, 110.0])
    behind = [*[85.0] * 12]
    assert adaptation(series(behind), oracle).settled  # 85 >= 80, and 110 x 0.8 = 88 comes last
    assert not adaptation(series(behind), series(FLAT)).settled


def test_an_oracle_of_nothing_is_kept_up_with() -> None:
    found = adaptation(series([0.0] * 12), series([0.0] * 12))
    assert found.settled and found.tolerance == 0.05
    assert math.isnan(found.regret_share)
    assert found.undershoot == 0.0


def test_unlike_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="expected the same windows"):
        adaptation(series(FLAT), series(FLAT[:-1]))
    with pytest.raises(ValueError, match="expected the same windows"):
        adaptation(series(FLAT), series(FLAT, window_s=1.0))


@given(holds=st.lists(st.booleans(), max_size=30), windows=st.integers(1, 6))
def test_settling_by_brute_force(holds: list[bool], windows: int) -> None:
    starts = range(len(holds) - windows + 1)
    found = [start for start in starts if all(holds[start : start + windows])]
    expected = (found[0], True) if found else (len(holds), False)
    assert settling(np.array(holds, np.bool_), windows) == expected


@given(
    own=st.lists(st.floats(0, 200), min_size=8, max_size=8),
    best=st.lists(st.floats(0, 200), min_size=8, max_size=8),
)
def test_the_parts_add_up(own: list[float], best: list[float]) -> None:
    found = adaptation(series(own), series(best))
    if found.judged:
        parts = found.transient_regret_tokens + found.steady_regret_tokens
        assert parts == pytest.approx(found.regret_tokens)
        assert 0.0 <= found.undershoot <= 1.0
    assert found.regret_tokens == pytest.approx(2.0 * (sum(best) - sum(own)))
    assert found.debt_tokens >= max(found.regret_tokens, 0.0) - 1e-9


# -- an oracle too noisy for the question ----------------------------------------------------------

# Last quarter 0, 0, 300: mean 100, standard deviation 173, so the tolerance is 346 %.
NOISY = [*[100.0] * 9, 0.0, 0.0, 300.0]


def test_nobody_is_settled_where_the_oracles_noise_hides_all() -> None:
    found = adaptation(series([0.0] * 12), series(NOISY))  # a controller that serves nothing
    assert found.tolerance > 1.0
    assert not found.judged and not found.settled
    hidden = (
        found.settling_s, found.settling_iterations, found.excess_s, found.undershoot,
        found.transient_regret_tokens, found.steady_regret_tokens, found.transition_violations,
    )  # fmt: skip
    assert all(math.isnan(figure) for figure in hidden)
    assert found.regret_tokens == found.debt_tokens == 2400.0  # what needs no bar stands


def test_the_unjudged_are_counted_and_not_in_the_curve() -> None:
    quick, slow = [*[0.0] * 2, *[100.0] * 10], [*[0.0] * 6, *[100.0] * 6]
    passages = [adaptation(series(own), series(FLAT)) for own in (quick, slow, [0.0] * 12)]
    assert all(passage.judged for passage in passages)
    found = settling_times([*passages, *[adaptation(series(FLAT), series(NOISY))] * 3])
    assert (found.judged, found.censored, found.unjudged) == (3, 1, 3)
    assert found.curve.times.tolist() == [4.0, 12.0]
    assert found.curve.median == 12.0
    assert settling_times([]).curve.median == math.inf
