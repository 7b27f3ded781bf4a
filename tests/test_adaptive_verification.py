"""vLLM's adaptive verification: prefixes against all of them, the estimator by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.errors import UserError
from engine.kernels.best_prefixes import best_prefixes
from engine.kernels.chain_margins import chain_margins, chances
from engine.kernels.logistic_moments import logistic_moments
from engine.protocol import Candidates, Floats, Limits
from policies import registry
from policies.adaptive_verification import (
    LEAST_CHANCE,
    MOST_CHANCE,
    AcceptanceEstimator,
    AdaptiveVerification,
)
from tests.priced_views import priced_view
from tests.test_adaptivespec import outcome_of
from tests.twins.best_prefixes import best_prefixes as prefixes_twin
from tests.twins.chain_margins import chain_margins as margins_twin
from tests.twins.logistic_moments import logistic_moments as twin

LIMITS = Limits(slots=3, max_depth=4)


def chains(*paths: list[float]) -> Candidates:
    """Chains of these path probabilities."""
    probability = np.zeros((len(paths), 4))
    for slot, path in enumerate(paths):
        probability[slot, : len(path)] = path
    size = np.array([len(path) for path in paths])
    index = np.tile(np.arange(4), (len(paths), 1))
    return Candidates(size, index - 1, index + 1, index, probability)


def test_no_prefixes_are_better() -> None:
    rng = np.random.default_rng(0)
    kept_all = kept_none = 0
    for _ in range(800):
        requests, steps = int(rng.integers(1, 4)), 4
        # Binary fractions, so that sums are exact and ties happen.
        chances: Floats = rng.integers(1, 9, (requests, steps)) / 8
        survival = np.cumprod(chances, axis=1, dtype=np.float64)
        size = rng.integers(0, steps + 1, requests)
        # Any rising cost will do, staircases included.
        rises = rng.choice([0.0, 0.125, 0.5, 3.0], int(size.sum()))
        seconds: Floats = float(rng.integers(1, 5)) + np.concatenate(([0.0], np.cumsum(rises)))
        kept = best_prefixes(survival, size, requests, seconds)
        assert (kept == prefixes_twin(survival, size, requests, seconds)).all()
        best = max(
            (requests + sum(survival[r, :n].sum() for r, n in enumerate(taken)))
            / seconds[sum(taken)]
            for taken in itertools.product(*(range(n + 1) for n in size.tolist()))
        )
        lengths = kept.sum(1)
        assert (kept == (np.arange(steps) < lengths[:, None])).all() and (lengths <= size).all()
        found = (requests + survival[kept].sum()) / seconds[kept.sum()]
        assert found == pytest.approx(best, rel=1e-12)
        kept_all += size.sum() > 0 and (lengths == size).all()
        kept_none += size.sum() > 0 and lengths.sum() == 0
    assert kept_all > 50 and kept_none > 50


def test_a_budget_by_hand() -> None:
    # Survivals 0.9, 0.72 and 0.5, 0.1. At 10 s and 1 s a draft: 2 / 10 = 0.2; 2.9 / 11 = 0.264;
    # 3.62 / 12 = 0.302; 4.12 / 13 = 0.317; 4.22 / 14 = 0.301. Three: of the second its first alone.
    survival = np.array([[0.9, 0.72], [0.5, 0.1]])
    kept = best_prefixes(survival, np.array([2, 2]), 2, np.arange(10.0, 15.0))
    assert kept.tolist() == [[True, True], [True, False]]
    # A staircase: the third draft costs 3 s more. 3.62 / 12 beats 4.12 / 15 and 4.22 / 15.
    kept = best_prefixes(survival, np.array([2, 2]), 2, np.array([10.0, 11, 12, 15, 15]))
    assert kept.tolist() == [[True, True], [False, False]]
    assert not best_prefixes(survival, np.array([2, 2]), 2, np.arange(1.0, 46.0, 9.0)).any()
    assert best_prefixes(survival, np.array([0, 1]), 2, np.ones(2)).tolist() == [
        [False, False],
        [True, False],
    ]


def test_a_newton_step_by_hand() -> None:
    # One position, w = 0, b = 1.5: every prediction is 1 / (1 + e^-1.5) = 0.817574, its spread
    # 0.149146. Margins 2 (accepted) and 0 (not): curvature 0.149146 · (4, 2, 2) for ww, wb, bb, and
    # gradient (2 · 0.182426, 0.182426 − 0.817574) = (0.364851, −0.635149). With 0.001 on the
    # diagonal the determinant is 0.597586 · 0.299293 − 0.298293² = 0.0898745.
    # Δw = (0.299293 · 0.364851 + 0.298293 · 0.635149) / 0.0898745 = 3.323078,
    # Δb = (−0.597586 · 0.635149 − 0.298293 · 0.364851) / 0.0898745 = −5.434119.
    estimator = AcceptanceEstimator(1, refit=1, least=2)
    margin = np.array([[2.0], [0.0]])
    predicted, _ = estimator.predict(margin)
    assert predicted[:, 0] == pytest.approx([0.817574, 0.817574], abs=1e-6)
    estimator.learn(margin, predicted, np.array([1, 1]), np.array([1, 0]))
    assert estimator.weight[0] == pytest.approx(3.323078, abs=2e-4)
    assert estimator.bias[0] == pytest.approx(1.5 - 5.434119, abs=2e-4)


def test_only_positions_that_were_reached_and_verified_teach() -> None:
    estimator = AcceptanceEstimator(3, refit=1, least=1)
    margin = np.array([[0.0] * 3, [2.0] * 3])
    before = estimator.bias.copy()
    # Three admitted and the first rejected: the others were not reached. One admitted, accepted.
    estimator.learn(margin, estimator.predict(margin)[0], np.array([3, 1]), np.array([0, 1]))
    assert estimator.bias[0] != before[0] and (estimator.bias[1:] == before[1:]).all()
    few = AcceptanceEstimator(1, refit=1, least=3)
    few.learn(margin[:, :1], few.predict(margin[:, :1])[0], np.array([1, 1]), np.array([0, 1]))
    assert few.bias[0] == 1.5 and few.fits == 1


def test_moments_are_the_twins() -> None:
    rng = np.random.default_rng(0)
    for requests in (0, 1, 5, 40):
        margin, predicted = rng.normal(2, 3, (requests, 7)), rng.random((requests, 7))
        admitted = rng.integers(0, 8, requests)
        given = margin, predicted, admitted, rng.integers(0, admitted + 1)
        for found, expected in zip(logistic_moments(*given), twin(*given), strict=True):
            assert found == pytest.approx(expected)


def test_a_slope_that_would_turn_negative_is_refused() -> None:
    estimator = AcceptanceEstimator(1, refit=1, least=1)
    margin = np.array([[3.0], [0.0]])
    estimator.learn(margin, estimator.predict(margin)[0], np.array([1, 1]), np.array([0, 1]))
    assert estimator.weight[0] == 0.0 and estimator.bias[0] == 1.5


def test_the_estimator_finds_a_logistic() -> None:
    rng = np.random.default_rng(1)
    estimator = AcceptanceEstimator(1, refit=20, least=50)
    for _ in range(400):
        margin = rng.uniform(-3, 6, (32, 1))
        accepted = (rng.random(32) < 1 / (1 + np.exp(-(0.8 * margin[:, 0] - 1.0)))).astype(int)
        estimator.learn(margin, estimator.predict(margin)[0], np.ones(32, int), accepted)
    assert estimator.fits == 20
    assert estimator.weight[0] == pytest.approx(0.8, abs=0.15)
    assert estimator.bias[0] == pytest.approx(-1.0, abs=0.35)


def test_margins() -> None:
    # q = 0.8, then 0.4 / 0.8 = 0.5: ln 4 and 0; a sure token has the largest margin, ln(2^53).
    drafted = chains([0.8, 0.4], [1.0], [])
    found = chain_margins(drafted.size, drafted.probability, 3, LEAST_CHANCE, MOST_CHANCE)
    assert found.shape == (3, 3) and np.isfinite(found).all()
    assert found[0, :2] == pytest.approx([np.log(4), 0.0])
    assert found[1, 0] == pytest.approx(53 * np.log(2), rel=1e-6)


def test_margins_are_the_twins() -> None:
    rng = np.random.default_rng(2)
    paths = [np.cumprod(rng.random(n) ** 20).tolist() for n in rng.integers(0, 5, 40)]
    drafted = chains(*paths)
    found = chain_margins(drafted.size, drafted.probability, 3, LEAST_CHANCE, MOST_CHANCE)
    for row, path in zip(found.tolist(), paths, strict=True):
        wanted = margins_twin(path[:3], LEAST_CHANCE, MOST_CHANCE)
        assert row[: len(wanted)] == pytest.approx(wanted)


def test_chances_are_logistic_and_survival_their_product() -> None:
    rng = np.random.default_rng(4)
    margin = rng.normal(0, 400, (30, 4))  # far enough that exponentials overflow
    weight, bias = rng.random(4) * 3, rng.normal(0, 2, 4)
    own, survival = chances(margin, weight, bias)
    with np.errstate(over="ignore"):
        wanted = 1 / (1 + np.exp(-(weight * margin + bias)))
    assert own == pytest.approx(wanted) and (own == 0).any() and (own == 1).any()
    assert survival == pytest.approx(np.cumprod(wanted, axis=1))


def test_full_chains_until_the_estimator_is_warm_then_what_pays() -> None:
    controller = AdaptiveVerification(steps=2, refit=1, warm_up=1)
    controller.reset(LIMITS)
    # Verification is dear: 10 s a token beside 10 + 2 · (1 + 0.2) s for all else.
    view = priced_view(2, 10.0 * np.arange(40), LIMITS)
    drafted = chains([0.9, 0.8], [0.5, 0.1], [])
    plan = controller.plan(view)
    assert plan.depth.tolist() == [2] * 3 and plan.width.tolist() == [1] * 3
    assert controller.select(view, plan, drafted).sum() == 4
    controller.observe(outcome_of([2, 2, 0], [2, 0, 0], LIMITS))
    # c is 0.8176 still: survivals 0.8176 and 0.6684. 2 / 32.4 = 0.0617, 2.8176 / 42.4 = 0.0664,
    # 3.635 / 52.4 = 0.0694, 4.3036 / 62.4 = 0.0690: the first of both.
    kept = controller.select(view, plan, drafted)
    assert kept.tolist() == [[True, False, False, False]] * 2 + [[False] * 4]
    free = priced_view(2, np.zeros(40), LIMITS)
    assert controller.select(free, plan, drafted).sum() == 4
    controller.reset(LIMITS)
    assert controller.select(view, plan, drafted).sum() == 4


@pytest.mark.parametrize("label", ["steps", "refit", "least"])
def test_bad_parameters_are_told(label: str) -> None:
    with pytest.raises(UserError, match=f"{label} is 0; expected"):
        registry.make(f"adaptive-verification({label}=0)")
    with pytest.raises(UserError, match="warm_up is -1"):
        AdaptiveVerification(warm_up=-1)
