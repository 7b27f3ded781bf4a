"""Twin of `models.ragged_attention.attend`: softmax attention of one query, in plain floats."""

from __future__ import annotations

import math
from collections.abc import Sequence


def attend(
    query: Sequence[float], keys: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
) -> list[float]:
    """Values mixed by softmax(query · key / √d) over all rows given."""
    scores = [
        sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys
    ]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [
        sum(w * value[d] for w, value in zip(weights, values, strict=True)) / sum(weights)
        for d in range(len(query))
    ]
