"""Twins of `engine.kernels.tree_sizes`: one request at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence


def fused(confidence: float, agreement: float, weight: float) -> float:
    """The signal, of [0, 1] as both its parts are."""
    return weight * confidence + (1.0 - weight) * agreement


def between(signal: float, ends: Sequence[int]) -> int:
    """A whole number between the ends, in step with the signal; halves go to the even one."""
    low, high = ends
    return low + round(signal * (high - low))


def tree(
    confidence: float,
    agreement: float,
    weight: float,
    ends: Sequence[Sequence[int]],
    most: Sequence[int],
    since_proposed: int,
    probe: int,
) -> list[int]:
    """Depth, width and nodes; `ends` are the three sizes at a signal of 0, and those at 1."""
    signal = fused(agreement if math.isnan(confidence) else confidence, agreement, weight)
    sizes = [
        min(between(signal, pair), bound)
        for pair, bound in zip(zip(*ends, strict=True), most, strict=True)
    ]
    return [1, 1, 1] if sizes[0] == 0 and since_proposed >= probe else sizes


def shares(
    here: Sequence[bool], proposed: Sequence[Sequence[bool]], accepted: Sequence[Sequence[bool]]
) -> dict[int, float]:
    """By slot, the share of what was proposed that was accepted."""
    return {
        slot: sum(accepted[slot]) / sum(proposed[slot])
        for slot in range(len(here))
        if here[slot] and any(proposed[slot])
    }
