"""Entropy of a softmax in plain Python (`engine.kernels.entropy`)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def entropy(logits: Sequence[float]) -> float:
    """Nats."""
    largest = max(logits)
    e = [math.exp(x - largest) for x in logits]
    total = math.fsum(e)
    return -math.fsum(p / total * math.log(p / total) for p in e if p > 0)
