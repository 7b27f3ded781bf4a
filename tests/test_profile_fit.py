"""The cost model: known curves are found again, wrong forms are not, and nothing ever falls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.profile.fit
from engine.profile.cost_model import Curve, PassCost
from engine.profile.fit import CurveData, Form, fit
from engine.protocol import Floats

TOKENS = np.unique(np.r_[np.arange(1, 97, 3), 16, 17, 32, 33, 48, 49, 64, 65, 80, 81, 96.0])
ALL_TOKENS = np.arange(1.0, 97.0)


def stairs_s(tokens: Floats) -> Floats:
    """Captured graph sizes: multiples of 16."""
    return 0.01 + 0.004 * np.ceil(tokens / 16)


def pieces_s(tokens: Floats) -> Floats:
    """Flat while the weights are read, then two slopes."""
    return np.interp(tokens, [0, 25, 64, 96], [0.020, 0.021, 0.050, 0.110])


def fitted(times: Floats, *forms: Form) -> Curve:
    """The fit of a curve alone."""
    data = CurveData(TOKENS, np.ones_like(TOKENS))
    return fit([data], [], times, forms or ("pieces", "stairs", "both")).curves[0]


def worst_error(curve: Curve, truth: Floats) -> float:
    """Largest relative error over all token counts, fitted or not."""
    return float(np.abs(curve(ALL_TOKENS) / truth - 1).max())


def test_a_staircase_is_found() -> None:
    curve = fitted(stairs_s(TOKENS))
    assert worst_error(curve, stairs_s(ALL_TOKENS)) < 0.02
    assert curve.jumps_at == (16.5, 32.5, 48.5, 64.5, 80.5)


def test_pieces_are_found() -> None:
    curve = fitted(pieces_s(TOKENS))
    assert worst_error(curve, pieces_s(ALL_TOKENS)) < 0.02
    assert len(curve.knots) <= 5


def test_the_wrong_form_does_not_find_them() -> None:
    assert worst_error(fitted(stairs_s(TOKENS), "pieces"), stairs_s(ALL_TOKENS)) > 0.02
    assert worst_error(fitted(pieces_s(TOKENS), "stairs"), pieces_s(ALL_TOKENS)) > 0.02


def test_noise_is_not_followed() -> None:
    noisy = pieces_s(TOKENS) * np.exp(0.03 * np.random.default_rng(0).standard_normal(len(TOKENS)))
    curve = fitted(noisy)
    assert len(curve.knots) + len(curve.jumps_at) < 8
    off = np.abs(curve(ALL_TOKENS) / pieces_s(ALL_TOKENS) - 1)
    assert np.median(off) < 0.02


def test_disturbed_times_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    times = pieces_s(TOKENS) * np.exp(0.02 * rng.standard_normal(len(TOKENS)))
    times[rng.permutation(len(TOKENS))[:5]] *= 2.5

    def typical_error() -> float:
        return float(np.median(np.abs(fitted(times)(ALL_TOKENS) / pieces_s(ALL_TOKENS) - 1)))

    assert typical_error() < 0.02
    monkeypatch.setattr(engine.profile.fit, "REFITS", 0)  # negative control
    assert typical_error() > 0.05


def test_points_count_by_their_weights() -> None:
    x = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0], 2)
    times = np.where(np.arange(10) % 2, 1.1, 1.0)  # every count once at 1.0 and once at 1.1
    trusted = np.where(np.arange(10) % 2, 1.0, 1e6)
    found = fit([CurveData(x, np.ones(10))], [], times, weights=trusted)
    assert found.curves[0](x) == pytest.approx(np.ones(10), rel=1e-3)
    alike = fit([CurveData(x, np.ones(10))], [], times)
    assert alike.curves[0](x) == pytest.approx(np.full(10, 1.05), rel=0.01)


def test_linear_terms_and_two_curves_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    first, beam = rng.integers(1, 60, 80).astype(float), rng.integers(1, 60, 80).astype(float)
    further, kv = rng.integers(0, 6, 80).astype(float), rng.integers(10, 4000, 80).astype(float)
    seconds = (0.002 + 2e-4 * first) + further * (0.001 + 5e-5 * beam) + 1e-6 * kv
    curves = [CurveData(first, np.ones(80)), CurveData(beam, further)]
    found = fit(curves, [kv], seconds)
    assert found.linear[0] == pytest.approx(1e-6, rel=0.05)
    x = np.array([1.0, 20, 50])
    assert found.curves[0](x) == pytest.approx(0.002 + 2e-4 * x, rel=0.02)
    assert found.curves[1](x) == pytest.approx(0.001 + 5e-5 * x, rel=0.02)


@settings(max_examples=15)
@given(st.lists(st.floats(1e-4, 1.0), min_size=12, max_size=12))
def test_no_fit_ever_falls(times: list[float]) -> None:
    x = np.arange(1.0, 13.0)
    found = fit([CurveData(x, np.ones(12))], [x[::-1].copy()], np.array(times))
    assert (np.diff(found.curves[0](np.linspace(0, 40, 200))) >= -1e-12).all()
    assert found.linear[0] >= 0


@settings(max_examples=50)
@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=4, unique=True),
    st.lists(st.floats(0, 50), max_size=3, unique=True),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.lists(st.floats(-5, 60), min_size=1, max_size=5),
)
def test_one_count_costs_what_it_costs_among_many(
    knots: list[float], jumps: list[float], values: list[float], counts: list[float]
) -> None:
    curve = Curve(
        values[0],
        tuple(sorted(knots)),
        tuple(values[1 : 1 + len(knots)]),
        tuple(sorted(jumps)),
        tuple(values[5 : 5 + len(jumps)]),
    )
    cost = PassCost(curve, 0.1, 0.01, 0.2)
    for count in [*counts, *knots, *jumps]:  # where pieces meet, too
        by_hand = values[0] + sum(
            slope * min(max(count - start, 0.0), end - start)
            for start, end, slope in zip(
                curve.knots, (*curve.knots[1:], np.inf), curve.slopes_s, strict=True
            )
        )
        by_hand += sum(h for at, h in zip(curve.jumps_at, curve.jumps_s, strict=True) if count > at)
        assert curve.at(count) == pytest.approx(by_hand)
        assert float(curve(count)) == pytest.approx(by_hand)
        assert cost.at(count, 30.0, 3) == pytest.approx(float(cost(count, 30.0, 3)))


def test_a_curve_by_hand() -> None:
    curve = Curve(1.0, (0.0, 10.0), (0.1, 0.5), (4.0,), (2.0,))
    assert curve([0, 4, 5, 10, 12]) == pytest.approx([1.0, 1.4, 3.5, 4.0, 5.0])
    assert curve(4).shape == ()


def test_a_pass_by_hand() -> None:
    cost = PassCost(Curve(1.0, (0.0,), (0.5,)), kv_token_s=0.01, attended_s=0.001, request_s=0.2)
    # Four tokens of two requests with 100 cached tokens together: 50 each.
    assert cost(4, 100, 2) == pytest.approx(1.0 + 2.0 + 1.0 + 0.001 * 4 * 50 + 0.4)
    assert cost([4, 5], 100, 2).shape == (2,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_s": -1.0},
        {"slopes_s": (-1.0,)},
        {"slopes_s": (1.0, 2.0)},
        {"knots": (5.0, 0.0), "slopes_s": (1.0, 1.0)},
        {"jumps_at": (1.0,)},
        {"jumps_at": (2.0, 1.0), "jumps_s": (1.0, 1.0)},
    ],
)
def test_curves_that_could_fall_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="curve"):
        Curve(**wrong)
