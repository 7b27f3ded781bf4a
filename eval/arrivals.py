"""Held-out episodes: arrivals that every compared controller is given and none was trained on."""

from __future__ import annotations

from engine.drawing import Draw
from engine.workload import FIRST_HELD_OUT_SEED, episode_generator
from eval.runner import SeededRequests


def held_out(draw: Draw, count: int, first: int = FIRST_HELD_OUT_SEED) -> list[SeededRequests]:
    """`count` episodes that training cannot have seen, whatever its seed."""
    return [_episode(draw, seed) for seed in range(first, first + count)]


def _episode(draw: Draw, seed: int) -> SeededRequests:
    return SeededRequests(seed, lambda: draw(episode_generator(seed)))
