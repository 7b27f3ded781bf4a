"""Twin of `engine.kernels.variance_ratio`: one history at a time, its entries laid out by age."""

from __future__ import annotations

from collections.abc import Sequence


def variance_ratio(history: Sequence[float], count: int, short: int, decay: float) -> float:
    """Of a history into which `count` entries were written, round and round."""
    size = len(history)
    known = min(count, size)
    newest_first = [history[(count - 1 - age) % size] for age in range(known)]
    if known < 2:
        return 0.0
    whole = variance(newest_first, decay)
    return (
        20.0
        if whole < 1e-6
        else variance(newest_first[: max(known * short // size, 1)], decay) / whole
    )


def variance(newest_first: Sequence[float], decay: float) -> float:
    """Weighted, the newest most."""
    weights = [decay**age for age in range(len(newest_first))]
    mean = sum(w * x for w, x in zip(weights, newest_first, strict=True)) / sum(weights)
    squares = [w * (x - mean) ** 2 for w, x in zip(weights, newest_first, strict=True)]
    return sum(squares) / sum(weights)
