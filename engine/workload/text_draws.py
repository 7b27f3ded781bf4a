"""What every drawing of requests draws alike: which text is next and how long its answer may be.

One order of draws on live and on replay, so that changing one of them cannot part the two.
"""

from __future__ import annotations

import math

import numpy as np

from engine.protocol import Ints


def next_text(last: int, count: int, generator: np.random.Generator) -> int:
    """Uniform over `count` texts without the last one; -1 for `last` where there was none."""
    return text_after(last, count, int(generator.integers(_choices(last, count))))


def text_after(last: int, count: int, drawn: int) -> int:
    """The text that the number drawn for `next_text` stands for."""
    return drawn if last < 0 or count == 1 else (last + 1 + drawn) % count


def _choices(last: int, count: int) -> int:
    return count if last < 0 or count == 1 else count - 1


def draw_all(
    slo_class: Ints, counts: Ints, max_tokens: int, generator: np.random.Generator
) -> list[list[int]]:
    """For each of n requests the number that `next_text` draws, and its `output_tokens`.

    `counts` [C] are the texts of every class, of which each has its own last one. The generator
    draws what 2 n calls would, in far less time (NumPy draws arrays in order).
    """
    seen = {c: int(np.argmax(slo_class == c)) for c in np.unique(slo_class).tolist()}
    low = np.full((len(slo_class), 2), math.ceil(max_tokens / 2))
    high = np.full(low.shape, max_tokens + 1)
    low[:, 0] = 0
    for c, first in seen.items():
        count = int(counts[c])
        high[slo_class == c, 0] = _choices(0, count)
        high[first, 0] = _choices(-1, count)
    drawn: list[list[int]] = generator.integers(low, high).tolist()
    return drawn


def output_tokens(max_tokens: int, generator: np.random.Generator) -> int:
    """The most tokens that a request may emit: uniform from half of `max_tokens`, rounded up."""
    return int(generator.integers(math.ceil(max_tokens / 2), max_tokens, endpoint=True))


def mean_output_tokens(max_tokens: int) -> float:
    """The mean of `output_tokens`."""
    return (math.ceil(max_tokens / 2) + max_tokens) / 2
