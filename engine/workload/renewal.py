"""Renewal processes of unit rate: gaps of mean 1 with a gamma or a Weibull distribution.

The first gap is the equilibrium one (what is left of a gap that is met at a random moment), so that
the expected count is exact from the start and bursty arrivals do not bunch there. Rates and clocks
are the caller's.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from engine.protocol import Floats

Process = Literal["gamma", "weibull", "poisson"]
CV_RANGE = (0.01, 20.0)  # the burstiest published trace (Azure code) has a CV of 13


class Gaps(NamedTuple):
    """A distribution of gaps with mean 1; shape 1 is the exponential one of Poisson arrivals."""

    shape: float
    is_weibull: bool = False

    @classmethod
    def of_cv(cls, cv: float, process: Process = "gamma") -> Gaps:
        """The gaps whose coefficient of variation is `cv`."""
        if process == "weibull":
            return cls(weibull_shape(cv), True)
        return cls(1.0 / cv**2)

    def draw(self, count: int, generator: np.random.Generator) -> Floats:
        """[count] gaps."""
        if self.is_weibull:
            return generator.weibull(self.shape, count) / math.gamma(1.0 + 1.0 / self.shape)
        return generator.gamma(self.shape, 1.0 / self.shape, size=count)

    def draw_first(self, generator: np.random.Generator) -> float:
        """A uniform share of a gap that is drawn in proportion to its length."""
        if self.is_weibull:  # if length-biased, (gap / scale) ** shape is gamma distributed
            longer = generator.gamma(1.0 + 1.0 / self.shape) ** (1.0 / self.shape)
            return longer / math.gamma(1.0 + 1.0 / self.shape) * generator.random()
        return generator.gamma(self.shape + 1.0, 1.0 / self.shape) * generator.random()


def marks_until(end: float, gaps: Gaps, generator: np.random.Generator) -> Floats:
    """[n] sorted marks in [0, end), one for each unit on average."""
    marks = np.array([gaps.draw_first(generator)])
    block = 64 + int(end / 4)
    while marks[-1] < end:
        marks = np.concatenate([marks, marks[-1] + np.cumsum(gaps.draw(block, generator))])
    return marks[marks < end]


def weibull_shape(cv: float) -> float:
    """The shape k with Γ(1 + 2/k) / Γ(1 + 1/k)² − 1 = cv², by bisection."""
    target = math.log1p(cv**2)
    low, high = 0.05, 500.0  # cv 300 000 and 0.003
    for _ in range(100):
        middle = math.sqrt(low * high)
        spread = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        low, high = (middle, high) if spread > target else (low, middle)
    return math.sqrt(low * high)
