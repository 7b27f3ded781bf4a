"""Twin of `engine.kernels.select.rank_candidates` for one slot."""

from __future__ import annotations

from collections.abc import Sequence


def rank_candidates(probability: Sequence[float], depth: Sequence[int]) -> list[int]:
    """Place of each candidate: likeliest first, ties to the shallower, then to the earlier."""
    order = sorted(range(len(depth)), key=lambda i: (-probability[i], depth[i], i))
    return [order.index(i) for i in range(len(depth))]
