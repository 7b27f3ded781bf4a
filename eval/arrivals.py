"""Held-out episodes: arrivals that every compared controller is given and none was trained on."""

from __future__ import annotations

import numpy as np

from engine.drawing import Draw
from eval.runner import Episode

HELD_OUT = 1000  # seeds from here on are never trained on


def held_out(draw: Draw, count: int, first: int = HELD_OUT) -> list[Episode]:
    """`count` episodes that training cannot have seen, whatever its seed."""
    return [_episode(draw, seed) for seed in range(first, first + count)]


def _episode(draw: Draw, seed: int) -> Episode:
    # Two words of entropy: no generator that was seeded with one number draws the same.
    return Episode(seed, lambda: draw(np.random.default_rng((seed, HELD_OUT))))
