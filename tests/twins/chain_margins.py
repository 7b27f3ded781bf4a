"""Twin of `engine.kernels.chain_margins`: one chain at a time, with what it drafted."""

from __future__ import annotations

import math
from collections.abc import Sequence


def chain_margins(path: Sequence[float], least: float, most: float) -> list[float]:
    """ln(q / (1 − q)) of the drafts of a chain, from their path probabilities."""
    own = [reached / before for before, reached in zip([1.0, *path], path, strict=False)]
    held = [min(max(q, least), most) for q in own]
    return [math.log(q) - math.log1p(-q) for q in held]
