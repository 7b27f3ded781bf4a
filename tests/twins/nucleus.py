"""Twin of `engine.sampling.nucleus.nucleus_end`: sort, then add until the share is reached."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nucleus_end(levels: Sequence[float], temperature: float, top_p: float) -> float:
    """Level of the last token of the shortest run of likeliest ones that reaches top_p."""
    order = sorted(levels, reverse=True)
    weight = [math.exp((level - order[0]) / temperature) for level in order]
    wanted = top_p * math.fsum(weight)
    sums = (math.fsum(weight[:n]) for n in range(1, len(order) + 1))
    return order[next(n for n, reached in enumerate(sums) if reached >= wanted)]
