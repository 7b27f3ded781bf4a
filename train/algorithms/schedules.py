"""Settings that change while a model learns, as words: `lin_0.001`, `warm_3e-4`.

`lin_START` falls evenly from START to 0. `warm_PEAK` rises from 0 in the first hundredth of
training and falls evenly to 0 in the rest. Either goes by how much of training is left, from 1 to
0, as Stable-Baselines3 tells it; a number stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

WARM_UP = 0.01
"""Share of training, as of Learning-to-Draft's (arXiv 2603.01639)."""


@dataclass(frozen=True)
class Falling:
    """From `start` to 0."""

    start: float

    def __call__(self, left: float) -> float:
        """The value when so much of training is left."""
        return self.start * left


@dataclass(frozen=True)
class WarmedUp:
    """From 0 to `peak` and back."""

    peak: float

    def __call__(self, left: float) -> float:
        """The value when so much of training is left."""
        return self.peak * min((1.0 - left) / WARM_UP, left / (1.0 - WARM_UP))


KINDS: dict[str, type[Falling] | type[WarmedUp]] = {"lin": Falling, "warm": WarmedUp}


def schedule(value: Any) -> Any:
    """The schedule that a word names, or None where it names none; what is no text stays."""
    if not isinstance(value, str):
        return value
    word, _, number = value.partition("_")
    try:
        most = float(number)
    except ValueError:
        return None
    return KINDS[word](most) if word in KINDS and 0.0 < most < math.inf else None
