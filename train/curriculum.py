"""From one regime to the workload itself, by how much of training is behind.

Three stages: up to a fifth of training one regime, in the middle of what the shifts draw from; up
to half, shifts of half that range that last twice as long; then the workload itself. An episode
that is under way is served to its end. Only the stage of new episodes changes, so nothing else
about training knows of it. No trainer is imported: processes that only serve draw from it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from engine.drawing import Draw
from engine.errors import UserError
from engine.request import Request
from engine.workload import WorkloadConfig

STAGES = (0.2, 0.5)
"""Shares of training after which the first and the second stage end."""


class Curriculum:
    """Draws the episodes of the stage that `share` lies in."""

    def __init__(self, work: WorkloadConfig, drawing: Callable[[WorkloadConfig], Draw]) -> None:
        """Raises UserError for a workload that does not shift."""
        self._draws = [drawing(stage) for stage in (steadied(work), halved(work), work)]
        self.share = 0.0
        """How much of training is behind, from 0 to 1."""

    @property
    def stage(self) -> int:
        """0, 1 or 2."""
        return sum(self.share >= end for end in STAGES)

    def __call__(self, generator: np.random.Generator) -> list[Request]:
        """One episode's requests."""
        return self._draws[self.stage](generator)


def steadied(work: WorkloadConfig) -> WorkloadConfig:
    """One regime in the middle of the shifts' ranges, of the mix that theirs have on average."""
    shifts = _shifts_of(work)
    return replace(work, name=f"{work.name}, one regime", shifts=None, load=sum(shifts.load) / 2)


def halved(work: WorkloadConfig) -> WorkloadConfig:
    """Shifts of half the range around its middle, half as often, of mixes half as far apart."""
    shifts = _shifts_of(work)
    gentle = replace(
        shifts,
        duration_s=tuple(2.0 * bound for bound in shifts.duration_s),
        load=_inner_half(*shifts.load),
        acceptance=_inner_half(*shifts.acceptance),
        # Of a Dirichlet distribution over C classes the variance is ~ 1 / (1 + C · concentration).
        concentration=4.0 * shifts.concentration,
        slow_probability=shifts.slow_probability / 2,
    )
    return replace(work, name=f"{work.name}, half as far", shifts=gentle)


def _shifts_of(work: WorkloadConfig) -> Any:
    if work.shifts is None:
        raise UserError(
            f"--curriculum --workload {work.name}: leads from one regime to shifting ones, and "
            "this workload does not shift; leave it out, or take a workload with shifts"
        )
    return work.shifts


def _inner_half(low: float, high: float) -> tuple[float, float]:
    quarter = (high - low) / 4
    return low + quarter, high - quarter
