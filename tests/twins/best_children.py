"""Twin of `engine.kernels.best.best_children` for one row."""

from __future__ import annotations

import math
from collections.abc import Sequence


def best_children(logits: Sequence[float], most: int) -> list[tuple[int, float]]:
    """The `most` likeliest (index, probability), of equals the lower index first."""
    exponentials = [math.exp(logit - max(logits)) for logit in logits]
    order = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    return [(v, exponentials[v] / sum(exponentials)) for v in order[:most]]
