"""Who is best where: every value of an axis is a regime, over whatever the other axes have.

A figure is the interquartile mean over a regime's cells and seeds. Cells are strata: seeds are
resampled within a cell, for all controllers alike, so that a difference is of what both served.
Whom an interval sets apart is a winner; where it straddles zero no difference is shown. Wilcoxon's
test asks the same of the cells' differences, held together by Holm's rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np

from engine.protocol import Bools, Floats
from eval.improvement import probability_of_improvement
from eval.matrix.scores import METRICS, Scores
from eval.parts import figure
from eval.significance import hodges_lehmann, holm, wilcoxon
from eval.statistics import (
    DRAWS,
    Interval,
    interquartile_mean,
    interval_of,
    mean_interval,
    resampled,
    several,
    verdict,
)
from eval.writing import joined

LEVEL = 0.95
IMPROVEMENT_DRAWS = 400
NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True)
class Served:
    """One metric of a regime: values [controllers, cells, seeds], nan where there is no score."""

    values: Floats
    rng: np.random.Generator
    draws: int = DRAWS

    def interval(self, controller: int, level: float = LEVEL) -> Interval:
        """Its interquartile mean where it has a score."""
        mask = self._known[controller]
        row, estimates = self._estimates(mask)
        point = _middle(self.values[controller][mask])
        return self._interval(point, estimates[row[controller]], mask, level)

    def mean(self, controller: int) -> Interval:
        """Its plain mean, hard cells and easy ones alike."""
        values = self.values[controller]
        cells = np.repeat(np.arange(len(values)), values.shape[1]).tolist()
        return mean_interval(values.ravel(), self.rng, draws=self.draws, strata=cells)

    def difference(self, one: int, other: int, level: float) -> Interval:
        """Interquartile mean of one less that of the other, where both have a score."""
        mask = self._known[one] & self._known[other]
        row, estimates = self._estimates(mask)
        mine, theirs = (_middle(self.values[c][mask]) for c in (one, other))
        apart = estimates[row[one]] - estimates[row[other]]
        return self._interval(mine - theirs, apart, mask, level)

    def cell_differences(self, one: int, other: int) -> Floats:
        """[cells] mean over the seeds of what one is above the other; nan where one has none."""
        apart = self.values[one] - self.values[other]
        known = ~np.isnan(apart)
        sums, counts = np.where(known, apart, 0.0).sum(axis=1), known.sum(axis=1)
        return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)

    @cached_property
    def _known(self) -> Bools:
        return ~np.isnan(self.values)

    @cached_property
    def _cache(self) -> dict[bytes, tuple[dict[int, int], Floats]]:
        return {}

    def _estimates(self, mask: Bools) -> tuple[dict[int, int], Floats]:
        """Resampled interquartile means [·, draws] over those cells and seeds.

        Of all controllers that have all of these scores, by row: the same resamples for all.
        """
        key = mask.tobytes()
        if key not in self._cache:
            who = [c for c in range(len(self.values)) if self._known[c][mask].all()]
            groups = [
                self.values[who, cell][:, mask[cell]] for cell in np.flatnonzero(mask.any(axis=1))
            ]
            found = (
                resampled(groups, self.rng, self.draws, interquartile_mean)
                if groups
                else np.full((len(who), self.draws), np.nan)
            )
            self._cache[key] = {c: i for i, c in enumerate(who)}, found
        return self._cache[key]

    def _interval(self, point: float, estimates: Floats, mask: Bools, level: float) -> Interval:
        cells = int(mask.any(axis=1).sum())
        if not cells:
            return Interval(float("nan"), -np.inf, np.inf, 0)
        return interval_of(point, estimates, int(mask.sum()), cells, level)


def _middle(values: Floats) -> float:
    return float(interquartile_mean(values)) if len(values) else float("nan")


CROSSED = ("target", "load")


def regimes(scores: Scores, rng: np.random.Generator, draws: int = DRAWS) -> list[dict[str, Any]]:
    """Every value of every axis that has more than one, as the summary holds them."""
    found = []
    for axis in scores.places:
        values = scores.values(axis)
        for value in values if len(values) > 1 else ():
            cells = scores.within(axis, value)
            found.append({"axis": axis, "value": value, **judged(scores, cells, rng, draws)})
    return found


def loads_by_target(
    scores: Scores, rng: np.random.Generator, draws: int = DRAWS
) -> list[dict[str, Any]]:
    """The same of every target at every load: what an operator of one deployment looks up."""
    found = []
    for target, load in product(*(scores.values(axis) for axis in CROSSED)):
        cells = scores.within("target", target) & scores.within("load", load)
        if cells.any():
            found.append({"target": target, "load": load, **judged(scores, cells, rng, draws)})
    return found


def judged(
    scores: Scores, cells: Bools, rng: np.random.Generator, draws: int = DRAWS
) -> dict[str, Any]:
    """Figures and verdicts over the chosen `cells` [cells]."""
    metrics = {
        name: _metric(name, Served(scores.of[name][:, cells], rng, draws), scores.controllers)
        for name in METRICS
    }
    return {
        "cells": int(cells.sum()),
        "controllers": {
            name: {
                **{metric: of["figures"][name] for metric, of in metrics.items()},
                **{f"{metric}_mean": of["means"][name] for metric, of in metrics.items()},
            }
            for name in scores.controllers
        },
        "verdicts": {metric: of["verdict"] for metric, of in metrics.items()},
        "differences": [row for of in metrics.values() for row in of["differences"]],
    }


def _metric(name: str, served: Served, controllers: Sequence[str]) -> dict[str, Any]:
    intervals = [served.interval(c) for c in range(len(controllers))]
    pairs = list(combinations(range(len(controllers)), 2))
    level = several(LEVEL, len(pairs) * len(METRICS))
    apart = [served.cell_differences(*pair) for pair in pairs]
    tests = holm([wilcoxon(of[~np.isnan(of)]) for of in apart])
    found = {
        pair: (served.difference(*pair, level), test, cells)
        for pair, test, cells in zip(pairs, tests, apart, strict=True)
    }
    most = 1.0 if name == "attainment" else np.inf
    means = [served.mean(c) for c in range(len(controllers))]
    verdict_of = _verdict(name, controllers, intervals, found)
    return {
        "figures": {c: figure(i, 0, most) for c, i in zip(controllers, intervals, strict=True)},
        "means": {c: figure(i, 0, most) for c, i in zip(controllers, means, strict=True)},
        "verdict": verdict_of,
        "differences": [
            _difference(name, served, controllers, pair, verdict_of["best"], *of)
            for pair, of in found.items()
        ],
    }


Found = dict[tuple[int, int], tuple[Interval, float, Floats]]


def _verdict(
    metric: str, controllers: Sequence[str], intervals: Sequence[Interval], found: Found
) -> dict[str, Any]:
    """Who leads, whom that is shown against, who may be as good and who is shown to be better."""
    known = [c for c, interval in enumerate(intervals) if np.isfinite(interval.mean)]
    groups: tuple[list[str], list[str], list[str]] = ([], [], [])
    beats, level_with, beaten_by = groups
    if known:
        leader = _leader(known, intervals, found)
        for other in known:
            if other != leader:
                groups[1 - _sign(_ahead(leader, other, found))].append(controllers[other])
    best = controllers[leader] if known else None
    says = [f"{best} beats {joined(beats)} on {metric}"] if beats else []
    says += [f"{name} beats {best} on {metric}" for name in beaten_by]
    if level_with:
        says.append(f"{best} against {joined(level_with)} on {metric}: {NO_DIFFERENCE}")
    alone = f"{best} alone has a score" if known else "nobody has a score"
    return {
        "best": best,
        "beats": beats,
        "level_with": level_with,
        "beaten_by": beaten_by,
        "says": "; ".join(says) or alone,
    }


def _leader(known: Sequence[int], intervals: Sequence[Interval], found: Found) -> int:
    """Whom the fewest are shown to beat, then who is ahead of the most others.

    Pairs are compared in the cells that both have: who raised in hard ones has a higher figure over
    its own cells, and is no better for it. Where nobody raised it is the highest figure.
    """

    def rank(one: int) -> tuple[int, int, float]:
        pairs = [_ahead(one, other, found) for other in known if other != one]
        beaten = sum(_sign(pair) < 0 for pair in pairs)
        return -beaten, sum(pair.mean > 0 for pair in pairs), intervals[one].mean

    return max(known, key=rank)


def _ahead(one: int, other: int, found: Found) -> Interval:
    """What one has more than the other, whichever way round it was compared."""
    interval = found[min(one, other), max(one, other)][0]
    if one < other:
        return interval
    return replace(interval, mean=-interval.mean, low=-interval.high, high=-interval.low)


def _sign(interval: Interval) -> int:
    return int(interval.low > 0) - int(interval.high < 0)


def _difference(
    metric: str,
    served: Served,
    controllers: Sequence[str],
    pair: tuple[int, int],
    best: str | None,
    interval: Interval,
    adjusted_p: float,
    cells: Floats,
) -> dict[str, Any]:
    one, other = (controllers[c] for c in pair)
    improvement = {}
    if best in (one, other):  # of all others nobody asks, and it takes the longest
        ours, theirs = (list(served.values[c]) for c in pair)
        draws = min(served.draws, IMPROVEMENT_DRAWS)
        better = probability_of_improvement(ours, theirs, served.rng, LEVEL, draws)
        improvement = {"improvement": figure(better, 0, 1)}
    return {
        "subject": one,
        "other": other,
        "metric": metric,
        **figure(interval),
        "wilcoxon_p_holm": adjusted_p,
        "hodges_lehmann": hodges_lehmann(cells),
        **improvement,
        "says": verdict(one, other, interval, metric, higher_is_better=True),
    }
