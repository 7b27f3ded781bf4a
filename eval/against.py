"""Whether a controller got worse: results against earlier ones of the same test.

Attainment and goodput, both better when higher, of every controller that both sets have. Where the
seeds are the same, differences are taken seed by seed, else means of both sides are set apart; in a
matrix within each cell, and of every regime besides. All of a set's intervals hold together at
95 %, so that the more is compared the more is asked of each. A controller that raises where it had
scores is worse without an interval. What nothing can be said of is named, and never passed as good.
Versions may differ: they are what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats
from eval.matrix.axes import AXES
from eval.matrix.scores import METRICS
from eval.scored import Scored, Unit
from eval.statistics import Interval, difference_of_means, paired_difference, several
from eval.writing import joined, with_interval

LEVEL = 0.95
EVERYWHERE = ""
FEWEST = 2
"""Seeds of a cell, on either side: one does not show how far seeds lie apart."""


@dataclass(frozen=True)
class Change:
    """A controller's metric now less what it was, over everything or one regime."""

    controller: str
    metric: str
    regime: str
    interval: Interval
    paired: bool

    @property
    def is_worse(self) -> bool:
        """Beyond its interval."""
        return self.interval.high < 0

    @property
    def says(self) -> str:
        """In a line."""
        shown = with_interval(4)(self.interval)
        how = "paired by seed" if self.paired else "on other seeds"
        of = _of(self.metric, self.regime)
        return f"{self.controller} is worse on {of}: {shown} ({how})"


@dataclass(frozen=True)
class Raises:
    """A controller that raises now in cells where it had scores."""

    controller: str
    cells: tuple[str, ...]
    scored: int
    """Cells of both sets in which it had scores before."""
    fault: str
    """Of the first of the cells."""

    @property
    def says(self) -> str:
        """In a line."""
        fault = " ".join(self.fault.split())
        return (
            f"{self.controller} raises now in {len(self.cells)} of {self.scored} cells where it "
            f"had scores ({fault})"
        )


@dataclass(frozen=True)
class Judgement:
    """What may be said of results against earlier ones."""

    before: str
    """Where the earlier ones are."""
    changes: list[Change]
    raises: list[Raises]
    unjudged: list[str]
    """Controllers and metrics, in words, of which neither set shows enough."""
    missing: list[str]
    """Controllers that the earlier results have and these do not."""

    @property
    def is_worse(self) -> bool:
        """Whether anybody is."""
        return bool(self.raises) or any(change.is_worse for change in self.changes)

    @property
    def says(self) -> str:
        """The verdict in words."""
        said = [one.says for one in self.raises]
        said += [change.says for change in self.changes if change.is_worse]
        if not said:
            names = joined(dict.fromkeys(change.controller for change in self.changes))
            said = [f"no controller got worse than in {self.before}: {names}"]
        if self.unjudged:
            said.append(f"could not be judged: {joined(self.unjudged)}")
        if self.missing:
            said.append(f"there and not served now: {joined(self.missing)}")
        return "; ".join(said)


def check_comparable(
    test: str, served: Mapping[str, Any], names: Sequence[str], before: Scored
) -> None:
    """Raise UserError where earlier results are of another test, nobody's, or of single seeds.

    It needs no result of what is compared, so that it can be asked before that is served.
    """
    if test != before.test:
        raise UserError(
            f"--against {before.where}: is of another test ({before.test}; this one is "
            f"{test}); compare what was served alike"
        )
    options = sorted(served.keys() | before.served.keys())
    if other := [name for name in options if served.get(name) != before.served.get(name)]:
        told = [
            f"--{name.replace('_', '-')} ({_option(before.served, name)}; here "
            f"{_option(served, name)})"
            for name in other
        ]
        raise UserError(
            f"--against {before.where}: was served with other {joined(told)}; compare what was "
            "served alike"
        )
    if not any(name in before.of for name in names):
        raise UserError(
            f"--against {before.where}: has none of these controllers; it has "
            f"{joined(before.of) if before.of else 'none'}"
        )
    if before.most_seeds < FEWEST:
        raise UserError(
            f"--against {before.where}: has one seed, which shows no interval; serve it again with "
            f"--seeds {FEWEST} or more"
        )


def judged(now: Scored, before: Scored, rng: np.random.Generator) -> Judgement:
    """All that may be said. Raises UserError where they are of different tests.

    So it does where nobody is shown to be worse and of some controller nothing can be shown.
    """
    check_comparable(now.test, now.served, list(now.of), before)
    found = changes(now, before, rng)
    raises = [r for name in _shared(now, before) if (r := _raises(name, now, before)) is not None]
    missing = [name for name in before.of if name not in now.of]
    unjudged = _unjudged(found, raises, now, before)
    judgement = Judgement(before.where, found, raises, unjudged, missing)
    seen = {change.controller for change in found} | {one.controller for one in raises}
    blind = [name for name in _shared(now, before) if name not in seen]
    # Who raised wherever it was served, before as well, is no reason to refuse the others.
    to_blame = [name for name in blind if _has_scores(name, before)] or ([] if seen else blind)
    if to_blame and not judgement.is_worse:
        raise UserError(
            f"--against {before.where}: nothing can be said of {joined(to_blame)}, as no cell has "
            f"{FEWEST} seeds with a score in both (without an objective there is none); serve "
            "more --seeds of what both have"
        )
    return judgement


def changes(now: Scored, before: Scored, rng: np.random.Generator) -> list[Change]:
    """Of controllers that both have, every metric, everywhere and in every regime.

    What shows no interval is left out: `judged` names it.
    """
    asked = [
        (name, metric, regime, strata)
        for name in _shared(now, before)
        for metric in METRICS
        for regime in [EVERYWHERE, *_regimes(now)]
        if (strata := _strata(*_kept(regime, now, before, name, metric))).ours
    ]
    level = several(LEVEL, len(asked))
    found = [
        Change(name, metric, regime, strata.difference(rng, level), strata.paired)
        for name, metric, regime, strata in asked
    ]
    return [change for change in found if math.isfinite(change.interval.high)]


@dataclass(frozen=True)
class Strata:
    """Both sides' values by cell; where paired, of the same seeds in the same order."""

    ours: list[Floats]
    theirs: list[Floats]
    paired: bool

    def difference(self, rng: np.random.Generator, level: float) -> Interval:
        """Of the means, ours less theirs."""
        if not self.paired:
            return difference_of_means(self.ours, self.theirs, rng, level)
        cells = [cell for cell, values in enumerate(self.ours) for _ in values]
        mine, other = np.concatenate(self.ours), np.concatenate(self.theirs)
        return paired_difference(mine, other, rng, level, strata=cells)


def _strata(now: Mapping[Unit, float], before: Mapping[Unit, float]) -> Strata:
    """On common seeds where any cell has enough of them, else on all.

    Cells with fewer are left out: a single one would take the interval from all others.
    """
    common = [unit for unit in now if unit in before]
    mine, theirs = (_by_cell({unit: of[unit] for unit in common}) for of in (now, before))
    paired = any(len(values) >= FEWEST for values in mine.values())
    if not paired:
        mine, theirs = _by_cell(now), _by_cell(before)
    cells = [cell for cell, of in mine.items() if min(len(of), len(theirs.get(cell, ()))) >= FEWEST]
    return Strata(
        [np.array(mine[cell]) for cell in cells], [np.array(theirs[cell]) for cell in cells], paired
    )


def _by_cell(values: Mapping[Unit, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (cell, _), value in values.items():
        found.setdefault(cell, []).append(value)
    return found


def _raises(name: str, now: Scored, before: Scored) -> Raises | None:
    """Where it had scores and raises; None where it does so nowhere."""
    served = {cell for values in now.of[name].values() for cell, _ in values}
    scored = dict.fromkeys(
        cell
        for values in before.of[name].values()
        for (cell, _), value in values.items()
        if cell in served and not math.isnan(value)
    )
    faults = now.faults.get(name, {})
    cells = tuple(cell for cell in scored if cell in faults)
    return Raises(name, cells, len(scored), faults[cells[0]]) if cells else None


def _has_scores(name: str, scored: Scored) -> bool:
    """Unless it raised wherever it was served."""
    cells = {cell for values in scored.of[name].values() for cell, _ in values}
    return not cells or not cells <= scored.faults.get(name, {}).keys()


def _unjudged(
    found: Sequence[Change], raises: Sequence[Raises], now: Scored, before: Scored
) -> list[str]:
    """Metrics without an interval, and regimes of those that have one; who raises is told of."""
    shown = {(change.controller, change.metric, change.regime) for change in found}
    told = []
    raising = {one.controller for one in raises}
    for name in (name for name in _shared(now, before) if name not in raising):
        for metric in METRICS:
            regimes = _regimes(now) if (name, metric, EVERYWHERE) in shown else [EVERYWHERE]
            told += [
                f"{name} on {_of(metric, regime)}"
                for regime in regimes
                if (name, metric, regime) not in shown
            ]
    return told


def _kept(
    regime: str, now: Scored, before: Scored, name: str, metric: str
) -> tuple[dict[Unit, float], dict[Unit, float]]:
    """Values by unit within the regime, of both; what has no score is left out."""

    def within(scored: Scored) -> dict[Unit, float]:
        values = scored.of[name][metric]
        return {
            (cell, seed): value
            for (cell, seed), value in values.items()
            if not math.isnan(value) and (not regime or regime in _of_cell(scored, cell))
        }

    return within(now), within(before)


def _shared(now: Scored, before: Scored) -> list[str]:
    return [name for name in now.of if name in before.of]


def _regimes(scored: Scored) -> list[str]:
    """By name, those of axes with more than one value."""
    found: dict[str, dict[str, None]] = {axis: {} for axis in AXES}
    for place in scored.regimes.values():
        for axis, value in place.items():
            found[axis][f"{axis} {value}"] = None
    return [regime for values in found.values() if len(values) > 1 for regime in values]


def _of_cell(scored: Scored, cell: str) -> set[str]:
    return {f"{axis} {value}" for axis, value in scored.regimes[cell].items()}


def _of(metric: str, regime: str) -> str:
    return f"{metric} at {regime}" if regime else metric


def _option(served: Mapping[str, Any], name: str) -> str:
    return str(served.get(name, "the usual one"))
