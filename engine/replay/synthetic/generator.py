"""Draw a recording of a pair: its classes, calibration and drift as configured.

The same pair, configuration and seed give the same arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Ints
from engine.replay.recording import Manifest, Recording
from engine.replay.synthetic.miscalibration import miscalibrated_odds
from engine.replay.synthetic.model import SIBLINGS, Drafting, Tier
from engine.replay.synthetic.pairs import Pair
from engine.replay.synthetic.texts import TextPlan, draw_texts, states

NETWORK = "synthetic"
"""`Manifest.network`: no network was run."""
MOST_WIDTH = len(SIBLINGS) + 1
LEAST_VOCAB = 2 * MOST_WIDTH
Shown = Literal["calibrated", "fitted", "miscalibrated"]


@dataclass(frozen=True)
class SyntheticConfig:
    """What to draw."""

    texts_per_class: int = 32
    tokens: int = 256
    """Output tokens of every text; a request for more cannot be replayed."""
    prompt_tokens: int = 128
    held_out_share: float = 0.5
    vocab_size: int = 32_000
    max_depth: int = 8
    max_width: int = 8
    max_nodes: int = 64
    shown: Shown = "calibrated"
    """What draft probabilities say: the truth, what the pair's published trees suggest, or what has
    an expected calibration error of `ece`."""
    ece: float = 0.065
    """For `miscalibrated`: positive is overconfident, negative underconfident."""
    drift: tuple[tuple[int, float], ...] = ()
    """(output token, factor on acceptance from there on), in order."""
    drift_is_seen: bool = True
    """Draft probabilities follow the drift; else only acceptance moves, and they mislead."""
    class_factors: Mapping[str, float] = field(default_factory=dict)
    """Factors on acceptance by class, always seen."""

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        bounds = {
            "texts_per_class": (1, 100_000),
            "tokens": (2, 100_000),
            "prompt_tokens": (1, 1_000_000),
            "held_out_share": (0, 1),
            "vocab_size": (LEAST_VOCAB, 2**31 - 1),
            "max_depth": (1, 16),
            "max_width": (1, MOST_WIDTH),
            "max_nodes": (self.max_width, 254),
            "ece": (-0.15, 0.15),
        }
        for name, (low, high) in bounds.items():
            if not low <= getattr(self, name) <= high:
                raise UserError(f"synthetic {name} {getattr(self, name)}: expected {low} to {high}")
        starts = [start for start, _ in self.drift]
        if starts != sorted(set(starts)) or min(starts, default=0) < 0:
            raise UserError(f"synthetic drift starts at tokens {starts}: expected them ascending")
        for factor in (*self.class_factors.values(), *(f for _, f in self.drift)):
            if not 0.0 < factor <= 2.0:
                raise UserError(f"synthetic factor {factor}: expected a factor above 0, to 2")


def draw_recording(
    pair: Pair, config: SyntheticConfig, rng: np.random.Generator
) -> tuple[Manifest, Recording]:
    """Texts of the pair's classes in turn. Raises UserError for a configuration out of bounds."""
    config.check()
    names = tuple(pair.classes)
    if unknown := set(config.class_factors) - set(names):
        raise UserError(f"synthetic class_factors name {sorted(unknown)}; {pair.name} has {names}")
    drafting = pair.drafting
    plans = [
        _plan_text(
            drafting,
            pair.kinds[pair.classes[name]].easy_share,
            config.class_factors.get(name, 1.0),
            config,
            rng,
        )
        for _ in range(config.texts_per_class)
        for name in names
    ]
    classes = np.tile(np.arange(len(names)), config.texts_per_class)
    turns = np.repeat(np.arange(config.texts_per_class), len(names))
    held_out = _held_out(turns, config.held_out_share)
    recording = draw_texts(
        plans,
        classes,
        held_out,
        Tier(config.max_depth, config.max_width, config.max_nodes),
        drafting._replace(odds_factor=odds_factor(pair, config)),
        config.vocab_size,
        rng,
    )
    manifest = Manifest(
        model=pair.model,
        drafter=pair.drafter,
        network=NETWORK,
        dtype="none",
        vocab_size=config.vocab_size,
        max_depth=config.max_depth,
        max_width=config.max_width,
        max_nodes=config.max_nodes,
        classes=names,
    )
    return manifest, recording


def odds_factor(pair: Pair, config: SyntheticConfig) -> float:
    """γ that the configuration asks for."""
    if config.shown == "fitted":
        return pair.drafting.odds_factor
    if config.shown == "miscalibrated":
        shares = [pair.kinds[kind].easy_share for kind in dict.fromkeys(pair.classes.values())]
        return miscalibrated_odds(pair.drafting, shares, config.ece)
    return 1.0


def drawn_drift(
    rng: np.random.Generator, tokens: int, every: int, low: float = 0.7, high: float = 1.1
) -> tuple[tuple[int, float], ...]:
    """A schedule with a factor U(low, high) every so many tokens (ALGORITHMS.md §10, shifting)."""
    return tuple((start, float(rng.uniform(low, high))) for start in range(0, tokens, every))


def _plan_text(
    drafting: Drafting,
    easy_share: float,
    class_factor: float,
    config: SyntheticConfig,
    rng: np.random.Generator,
) -> TextPlan:
    places = config.tokens - 1
    easy = states(easy_share, drafting.stickiness, places, rng)
    level = np.where(easy, drafting.easy, drafting.hard) * class_factor
    drift = np.ones(places)
    for start, factor in config.drift:
        drift[start:] = factor
    nothing = np.ones(places)
    tokens = rng.integers(config.vocab_size, size=config.prompt_tokens + config.tokens)
    if config.drift_is_seen:
        return TextPlan(level * drift, nothing, tokens, config.prompt_tokens)
    return TextPlan(level, drift, tokens, config.prompt_tokens)


def _held_out(turn: Ints, share: float) -> Bools:
    """Spread evenly, as a recorder's recipe does."""
    return np.floor((turn + 1) * share) > np.floor(turn * share)
