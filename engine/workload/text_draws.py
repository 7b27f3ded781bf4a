"""What every drawing of requests draws alike: which text is next and how long its answer may be.

One order of draws on live and on replay, so that changing one of them cannot part the two.
"""

from __future__ import annotations

import math

import numpy as np


def next_text(last: int, count: int, generator: np.random.Generator) -> int:
    """Uniform over `count` texts without the last one; -1 for `last` where there was none."""
    if last < 0 or count == 1:
        return int(generator.integers(count))
    return int((last + 1 + generator.integers(count - 1)) % count)


def output_tokens(max_tokens: int, generator: np.random.Generator) -> int:
    """The most tokens that a request may emit: uniform from half of `max_tokens`, rounded up."""
    return int(generator.integers(math.ceil(max_tokens / 2), max_tokens, endpoint=True))


def mean_output_tokens(max_tokens: int) -> float:
    """The mean of `output_tokens`."""
    return (math.ceil(max_tokens / 2) + max_tokens) / 2
