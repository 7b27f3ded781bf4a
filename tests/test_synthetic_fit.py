"""Fits of published acceptance: what they reproduce, what they cannot, what they predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares

from engine.errors import UserError
from engine.replay.synthetic.calibration import serving_tokens
from engine.replay.synthetic.check import best_independent_rate
from engine.replay.synthetic.fit import Given, fit_pair, predicted
from engine.replay.synthetic.heldout import errors, predict_held_out
from engine.replay.synthetic.model import Drafting, Tier, chain_tokens
from engine.replay.synthetic.pairs import Published, as_toml, find_pair, load_pairs
from engine.replay.synthetic.table import adaserve_pair, read_table
from engine.replay.synthetic.texts import sample_texts

CODER = "qwen3-coder-30b-a3b-instruct--lmsys-sglang-eagle3-qwen3-coder-30b-a3b-instruct-specforge"
FIGURE_12 = {4: 3.4, 6: 5.0, 8: 6.6}
TOLERANCE = 0.1  # what can be read off the plot


@pytest.mark.parametrize(
    "drafting",
    [Drafting(0.95, 0.4, 0.0, 1.0), Drafting(0.9, 0.3, 0.9, 0.95), Drafting(0.7, 0.7, 0.5, 0.9)],
)
def test_the_closed_form_is_what_serving_emits(drafting: Drafting) -> None:
    rng = np.random.default_rng(2)
    r = sample_texts(drafting, [0.7] * 2, Tier(6, 1, 6), 20_000, rng)
    for depth in (1, 3, 6):
        want = chain_tokens(drafting, np.array([0.7]), depth)[0]
        assert serving_tokens(r, Tier(depth, 1, depth)) == pytest.approx(want, rel=0.02)


def test_one_state_is_a_geometric_series() -> None:
    """0.5 + 0.25 + 0.125 accepted, and the bonus."""
    found = chain_tokens(Drafting(0.5, 0.5, 0.3, 1.0), np.array([0.2, 0.9]), 3)
    np.testing.assert_allclose(found, 1.875)


def test_adaserves_chains_come_out_of_the_fit_and_of_drawn_texts() -> None:
    pair = adaserve_pair()
    shipped = find_pair("adaserve-llama-70b")
    assert pair.drafting == pytest.approx(shipped.drafting, abs=1e-4)
    share = pair.kinds["all"].easy_share
    rng = np.random.default_rng(11)
    r = sample_texts(pair.drafting, [share] * 2, Tier(8, 1, 8), 20_000, rng)
    for depth, accepted in FIGURE_12.items():
        exact = chain_tokens(pair.drafting, np.array([share]), depth)[0] - 1
        assert exact == pytest.approx(accepted, abs=0.01)
        drawn = serving_tokens(r, Tier(depth, 1, depth)) - 1
        assert drawn == pytest.approx(accepted, abs=TOLERANCE)


def test_no_independent_rate_gives_them() -> None:
    """The negative control: the best rate misses by 0.16, 0.09 and -0.11 accepted drafts."""
    rate, misses = best_independent_rate(find_pair("adaserve-llama-70b"), "all")
    assert rate == pytest.approx(0.953, abs=0.002)
    np.testing.assert_allclose(misses, [0.155, 0.094, -0.107], atol=0.01)
    assert max(map(abs, misses)) > TOLERANCE


def token_state_tokens(depth: int, x: np.ndarray) -> float:
    """The model that was not taken: each guessed token has the state, a sticky chain of two."""
    share, stickiness, *levels = x
    law = np.array([share, 1 - share])
    step = stickiness * np.eye(2) + (1 - stickiness) * law
    accepts, alive, landing, accepted = np.array(levels), np.eye(2), np.zeros((2, 2)), np.zeros(2)
    for _ in range(depth):
        landing += alive @ step * (1 - accepts)
        alive = alive @ step * accepts
        accepted += alive.sum(1)
    landing += alive @ step
    begins = landing[1, 0] / (landing[1, 0] + landing[0, 1])
    return float(1 + begins * accepted[0] + (1 - begins) * accepted[1])


def test_neither_does_a_state_that_belongs_to_the_token() -> None:
    def misses(x: np.ndarray) -> list[float]:
        return [token_state_tokens(d, x) - 1 - a for d, a in FIGURE_12.items()]

    rng = np.random.default_rng(0)
    starts = rng.uniform(0.1, 0.9, (4, 4))
    found = [least_squares(misses, x, bounds=(0.001, 0.999)) for x in starts]
    best = min(found, key=lambda solved: solved.cost)
    assert np.abs(best.fun).max() > TOLERANCE
    assert np.abs(best.fun).max() < 0.16


def test_a_fit_finds_what_figures_were_made_of() -> None:
    """Chains of known parameters, two kinds of text: other depths are predicted to 1 %."""
    truth, shares = Drafting(0.95, 0.5, 0.8, 0.98), {"a": 0.9, "b": 0.4}

    def tokens(kind: str, depth: int) -> float:
        return float(chain_tokens(truth, np.array([shares[kind]]), depth)[0])

    figures = {
        kind: [Published(Tier(d, 1, d), tokens(kind, d)) for d in (3, 5, 7)] for kind in shares
    }
    fit = fit_pair(figures)
    for kind in shares:
        for depth in (2, 4, 8):
            (found,) = predicted(fit, kind, [Tier(depth, 1, depth)])
            assert found == pytest.approx(tokens(kind, depth), rel=0.01)
    given = fit_pair(figures, Given(stickiness=0.25, decay=1.0)).drafting
    assert (given.stickiness, given.decay) == (0.25, 1.0)


def test_held_out_chains_are_predicted_and_trees_roughly() -> None:
    """Two benchmarks of one pair: depth 7 from depths 3 and 5, a tree of 4 from one of 3."""
    found = predict_held_out(find_pair(CODER), "deeper")
    assert {p.published.tier for p in found} == {Tier(7, 1, 7), Tier(7, 4, 7)} and len(found) == 4
    chains = errors([p for p in found if p.published.tier.width == 1])
    trees = errors([p for p in found if p.published.tier.width > 1])
    assert np.median(chains) < 0.02 and chains.max() < 0.06
    assert np.median(trees) < 0.15


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    pairs = load_pairs()
    path = tmp_path / "pairs.toml"
    path.write_text(as_toml(list(pairs.values()), "on top\nof it"))
    assert load_pairs(path) == pairs
    assert sum(len(pair.kinds) for pair in pairs.values()) == 89
    path.write_text("[pair.x]\n")
    with pytest.raises(UserError, match="no pairs"):
        load_pairs(path)
    with pytest.raises(UserError, match="SpecForge"):
        read_table(path)
