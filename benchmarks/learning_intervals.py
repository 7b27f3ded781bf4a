"""Intervals over two levels, training seeds and held-out seeds, and what 'beats' means here.

A trained controller's figures are [training seeds, held-out seeds], those of who is not trained
[held-out seeds]; both are resampled, the held-out ones in common, so that all stay paired.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.protocol import Floats, Ints
from eval.statistics import interquartile_mean
from eval.two_level import resampled_at


class Estimate(NamedTuple):
    """A value and where it may lie (95 %)."""

    value: float
    low: float
    high: float

    def written(self, digits: int = 2, sign: str = "") -> str:
        """With its interval; `sign` is "+" to show it always."""
        v, low, high = (f"{x:{sign}.{digits}f}" for x in self)
        return f"{v} [{low}, {high}]"


def ratio(ours: Floats, theirs: Floats, rng: np.random.Generator) -> Estimate:
    """Interquartile mean of `ours` [T, S] over that of `theirs` [S], neither below 0."""
    value, low, high = _resampled(ours, theirs, rng, "ratio")
    return Estimate(value, max(low, 0.0), high)


def difference(ours: Floats, theirs: Floats, rng: np.random.Generator) -> Estimate:
    """Interquartile mean of `ours` [T, S] less `theirs` [S], paired by held-out seed."""
    return _resampled(ours, theirs, rng, "difference")


def beats(
    ours: dict[str, Floats], theirs: dict[str, Floats], rng: np.random.Generator
) -> tuple[bool, Estimate, Estimate]:
    """Whether goodput is shown to be more and violations are no more; both differences.

    `ours` are [T, S] and `theirs` [S] of "goodput" and "violations".
    """
    more = difference(ours["goodput"], theirs["goodput"], rng)
    missed = difference(ours["violations"], theirs["violations"], rng)
    return bool(more.low > 0 and missed.value <= 0), more, missed


def _resampled(ours: Floats, theirs: Floats, rng: np.random.Generator, kind: str) -> Estimate:
    """Both levels drawn anew (`eval.two_level`), theirs on the same seeds as ours."""
    ours, theirs = np.atleast_2d(ours), np.asarray(theirs, np.float64)

    def values(trainings: Ints, seeds: Ints) -> Floats:
        """[draws] of indices [draws, T] and [draws, S]."""
        mine, other = ours[trainings[:, :, None], seeds[:, None, :]], theirs[seeds]
        if kind == "difference":
            differences = mine - other[:, None, :]
            return interquartile_mean(differences.reshape(len(differences), -1))
        with np.errstate(divide="ignore", invalid="ignore"):
            over = interquartile_mean(mine.reshape(len(mine), -1))
            return np.asarray(over / interquartile_mean(other))

    found = resampled_at(values, ours.shape, rng)
    return Estimate(found.mean, found.low, found.high)
