"""Fit a pair's parameters to published figures.

Chains first, in closed form: the drafter's easy and hard level, stickiness and decay are shared by
all kinds of text, each kind has its share of easy text. Then the odds factor, by drawing: the one
parameter that says how trees fare beside chains. SciPy's least squares from a fixed start; nothing
is set by hand but the bounds, the start and what `Given` holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares, minimize_scalar

from engine.protocol import Floats
from engine.replay.synthetic.calibration import serving_tokens
from engine.replay.synthetic.model import Drafting, Tier, chain_tokens
from engine.replay.synthetic.pairs import Published
from engine.replay.synthetic.texts import sample_texts

# Of easy, hard, stickiness and decay. Longer stretches than 1 / (1 - 0.98) = 50 tokens would make
# a recording's few texts differ by chance.
LOW = np.array([0.3, 0.02, 0.0, 0.8])
HIGH = np.array([0.9995, 0.95, 0.98, 1.0])
START = np.array([0.95, 0.5, 0.5, 0.97])
SHARE_LOW, SHARE_HIGH = 0.005, 0.995
ODDS_LOW, ODDS_HIGH = 0.02, 10.0
FIT_TOKENS, PREDICTION_TOKENS, SEED = 2000, 4000, 0

Figures = Mapping[str, Sequence[Published]]


class Given(NamedTuple):
    """Parameters that the figures are too few to tell, set beforehand; None is fitted."""

    stickiness: float | None = None
    decay: float | None = None


ALL_FITTED = Given()


class Fit(NamedTuple):
    """What the figures give."""

    drafting: Drafting
    easy_share: dict[str, float]


def fit_pair(figures: Figures, given: Given = ALL_FITTED) -> Fit:
    """Least squares of relative errors over the figures of every kind of text."""
    fit = _fit_chains(figures, given)
    trees = {kind: [f for f in rows if f.tier.width > 1] for kind, rows in figures.items()}
    if not any(trees.values()):
        return fit
    return fit._replace(drafting=fit.drafting._replace(odds_factor=_fit_odds(fit, trees)))


def predicted(fit: Fit, kind: str, tiers: Sequence[Tier]) -> list[float]:
    """Tokens an iteration, bonus included, for each tier: chains exactly, trees as drawn."""
    share = np.array([fit.easy_share[kind]])
    trees = [tier for tier in tiers if tier.width > 1]
    drawn = (
        dict(zip(trees, _drawn(fit.drafting, share, trees, PREDICTION_TOKENS)[0], strict=True))
        if trees
        else {}
    )
    return [
        drawn[t] if t in drawn else float(chain_tokens(fit.drafting, share, t.depth)[0])
        for t in tiers
    ]


def _fit_chains(figures: Figures, given: Given) -> Fit:
    kinds = list(figures)
    rows = [
        (at, figure.tier.depth, figure.tokens)
        for at, kind in enumerate(kinds)
        for figure in figures[kind]
        if figure.tier.width == 1
    ]
    at, depth, tokens = (np.array(column) for column in zip(*rows, strict=True))
    fixed = np.array([np.nan, np.nan, _or_nan(given.stickiness), _or_nan(given.decay)])
    free = np.isnan(fixed)

    def unpack(x: Floats) -> tuple[Drafting, Floats]:
        levels = fixed.copy()
        levels[free] = x[: free.sum()]
        return Drafting(*levels.tolist()), x[free.sum() :]

    def errors(x: Floats) -> Floats:
        drafting, shares = unpack(x)
        by_depth = {d: chain_tokens(drafting, shares, d) for d in set(depth.tolist())}
        model = np.array([by_depth[d][i] for i, d in zip(at, depth.tolist(), strict=True)])
        return model / tokens - 1.0

    n = len(kinds)
    solved = least_squares(
        errors,
        np.concatenate([START[free], np.full(n, 0.5)]),
        bounds=(
            np.concatenate([LOW[free], np.full(n, SHARE_LOW)]),
            np.concatenate([HIGH[free], np.full(n, SHARE_HIGH)]),
        ),
    )
    drafting, shares = unpack(solved.x)
    return Fit(drafting, dict(zip(kinds, shares.tolist(), strict=True)))


def _fit_odds(fit: Fit, trees: Figures) -> float:
    kinds = [kind for kind, rows in trees.items() if rows]
    shares = np.array([fit.easy_share[kind] for kind in kinds])
    tiers = sorted({figure.tier for kind in kinds for figure in trees[kind]})

    def error(log_odds: float) -> float:
        shown = fit.drafting._replace(odds_factor=float(np.exp(log_odds)))
        model = _drawn(shown, shares, tiers, FIT_TOKENS)
        return float(
            sum(
                (model[i][tiers.index(figure.tier)] / figure.tokens - 1.0) ** 2
                for i, kind in enumerate(kinds)
                for figure in trees[kind]
            )
        )

    bounds = (np.log(ODDS_LOW), np.log(ODDS_HIGH))
    solved = minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 0.1})
    return float(np.exp(solved.x))


def _drawn(
    drafting: Drafting, shares: Floats, tiers: Sequence[Tier], tokens: int
) -> list[list[float]]:
    """Tokens an iteration by share and tier; the same draws whatever the drafting."""
    most = Tier(*(max(column) for column in zip(*tiers, strict=True)))
    return [
        [serving_tokens(r, tier) for tier in tiers]
        for r in (
            sample_texts(drafting, [share], most, tokens, np.random.default_rng(SEED))
            for share in shares.tolist()
        )
    ]


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
