"""The check of synthetic acceptance: figures with bars, and the points of its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from engine.replay.synthetic.calibration import (
    JUDGED,
    Reliability,
    reliability,
    serving_tokens,
)
from engine.replay.synthetic.heldout import SPLITS, Prediction, errors, predict_held_out
from engine.replay.synthetic.miscalibration import miscalibrated_odds
from engine.replay.synthetic.model import Drafting, Tier, chain_tokens
from engine.replay.synthetic.pairs import Pair
from engine.replay.synthetic.texts import sample_texts

ADASERVE = "adaserve-llama-70b"
EAGLE = "llama-3.1-8b-instruct--lmsys-sglang-eagle3-llama-3.1-8b-instruct-specforge"
ECES = {"calibrated": 0.0, "overconfident": 0.065, "underconfident": -0.065}
ACCEPTED_BAR, CALIBRATED_BAR, POSITIONS_BAR = 0.1, 0.01, 0.1
ECE_LOW, ECE_HIGH = 0.05, 0.08
SEED, TOKENS, QUICK_TOKENS = 1, 20_000, 4_000


class Figure(NamedTuple):
    """A line of the table; a figure without a bar is reported only."""

    name: str
    value: str
    bar: str
    holds: bool | None


class Check(NamedTuple):
    """All that the check found."""

    figures: list[Figure]
    curves: dict[str, Reliability]
    held_out: list[Prediction]


def check(
    pairs: dict[str, Pair], quick: bool, advance: Callable[[str], None] = lambda _: None
) -> Check:
    """Draw and measure; `quick` draws shorter texts and holds out rows of one pair alone."""
    tokens = QUICK_TOKENS if quick else TOKENS
    figures, curves = [], {}
    advance("AdaServe's figure 12")
    figures += _adaserve(pairs[ADASERVE], tokens)
    for name in (ADASERVE, EAGLE):
        for shown, ece in ECES.items():
            advance(f"calibration of {name}, {shown}")
            curve = _curve(pairs[name], ece, tokens)
            curves[f"{name} {shown}"] = curve
            figures.append(_judged(name, shown, ece, curve))
    advance(f"acceptance by position of {EAGLE}")
    figures.append(_positions(pairs[EAGLE], tokens))
    held_out: list[Prediction] = []
    for pair in pairs.values():
        if any(f.tier.width > 1 for kind in pair.kinds.values() for f in kind.published):
            if quick and pair.name != EAGLE:
                continue
            for split in SPLITS:
                advance(f"held-out rows of {pair.name}, {split}")
                held_out += predict_held_out(pair, split)
    return Check(figures + _held_out(held_out), curves, held_out)


def best_independent_rate(pair: Pair, kind: str) -> tuple[float, list[float]]:
    """The one rate per token nearest to the published chains, and its errors in tokens."""
    chains = [f for f in pair.kinds[kind].published if f.tier.width == 1]

    def misses(rate: float) -> list[float]:
        drafting = Drafting(rate, rate, 0.0, 1.0)
        return [
            float(chain_tokens(drafting, np.array([0.5]), f.tier.depth)[0]) - f.tokens
            for f in chains
        ]

    solved = minimize_scalar(
        lambda rate: sum(miss**2 for miss in misses(rate)), bounds=(0.05, 0.999), method="bounded"
    )
    return float(solved.x), misses(solved.x)


def _adaserve(pair: Pair, tokens: int) -> list[Figure]:
    share = pair.kinds["all"].easy_share
    rng = np.random.default_rng(SEED)
    r = sample_texts(pair.drafting, [share] * 4, Tier(8, 1, 8), tokens, rng)
    figures = []
    for published in pair.kinds["all"].published:
        accepted = serving_tokens(r, published.tier) - 1.0
        wanted = published.tokens - 1.0
        figures.append(
            Figure(
                f"AdaServe Llama, chain({published.tier.depth}), accepted drafts",
                f"{accepted:.2f}",
                f"{wanted:.1f} ± {ACCEPTED_BAR}",
                abs(accepted - wanted) <= ACCEPTED_BAR,
            )
        )
    rate, misses = best_independent_rate(pair, "all")
    worst = max(misses, key=abs)
    return [
        *figures,
        Figure(
            f"the same, best independent rate ({rate:.3f}), largest error",
            f"{worst:+.2f}",
            f"beyond ± {ACCEPTED_BAR}",
            abs(worst) > ACCEPTED_BAR,
        ),
    ]


def _curve(pair: Pair, ece: float, tokens: int) -> Reliability:
    shares = [pair.kinds[kind].easy_share for kind in dict.fromkeys(pair.classes.values())]
    drafting = pair.drafting._replace(odds_factor=miscalibrated_odds(pair.drafting, shares, ece))
    rng = np.random.default_rng(SEED)  # other draws than those by which the factor was found
    return reliability(sample_texts(drafting, shares, JUDGED, tokens, rng))


def _judged(pair: str, shown: str, ece: float, curve: Reliability) -> Figure:
    name = f"{pair.split('--')[0]}, {shown}, expected calibration error"
    if ece == 0.0:
        bar, holds = f"≤ {CALIBRATED_BAR:.0%}", curve.ece <= CALIBRATED_BAR
    else:
        bar, holds = f"{ECE_LOW:.0%} to {ECE_HIGH:.0%}", ECE_LOW <= curve.ece <= ECE_HIGH
    return Figure(name, f"{curve.ece:.2%}", bar, holds)


def _positions(pair: Pair, tokens: int) -> Figure:
    """Accepted at positions 1 to 3, 4 and 5, 6 and 7: differences between chains."""
    worst = 0.0
    for kind in pair.kinds.values():
        chains = sorted(f for f in kind.published if f.tier.width == 1)
        rng = np.random.default_rng(SEED)
        most = chains[-1].tier
        r = sample_texts(pair.drafting, [kind.easy_share] * 4, most, tokens, rng)
        drawn = np.array([serving_tokens(r, f.tier) for f in chains])
        published = np.array([f.tokens for f in chains])
        gaps = np.diff(drawn, prepend=1.0) - np.diff(published, prepend=1.0)
        worst = max(worst, float(np.abs(gaps).max()))
    return Figure(
        f"{pair.name.split('--')[0]}, accepted by position, largest error of "
        f"{len(pair.kinds)} benchmarks",
        f"{worst:.3f}",
        f"≤ {POSITIONS_BAR}",
        worst <= POSITIONS_BAR,
    )


def _held_out(predictions: Sequence[Prediction]) -> list[Figure]:
    figures = []
    for split in SPLITS:
        for shape in ("chains", "trees"):
            rows = [
                p
                for p in predictions
                if p.split == split and (p.published.tier.width == 1) == (shape == "chains")
            ]
            ways = ((False, "fitted"), (True, "calibrated")) if shape == "trees" else ((False, ""),)
            for calibrated, label in ways if rows else ():
                error = errors(rows, calibrated)
                figures.append(
                    Figure(
                        f"held-out rows, {split}, {len(rows)} {shape} {label}".rstrip()
                        + ", error median / p95",
                        f"{np.median(error):.1%} / {np.percentile(error, 95):.1%}",
                        "reported",
                        None,
                    )
                )
    return figures
