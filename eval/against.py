"""Whether a controller got worse: results against earlier ones of the same test.

Attainment and goodput, both better when higher, of every controller that both sets have. Where the
seeds are the same, differences are taken seed by seed, else means of both sides are set apart; in a
matrix within each cell, and of every regime besides. All of a set's intervals hold together at
95 %, so that the more is compared the more is asked of each. Versions may differ: they are what is
compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats
from eval.matrix.axes import AXES
from eval.matrix.scores import METRICS, scores_of
from eval.parts import read_part
from eval.statistics import Interval, difference_of_means, paired_difference, several
from eval.writing import joined, with_interval

LEVEL = 0.95
EVERYWHERE = ""
Unit = tuple[str, int]
"""A cell, "" outside a matrix, and a seed."""


@dataclass(frozen=True)
class Scored:
    """What a set of results says of each controller."""

    test: str
    """What was served, to tell one test from another."""
    where: str
    of: dict[str, dict[str, dict[Unit, float]]]
    """By controller and metric, the value of every unit."""
    regimes: dict[str, dict[str, str]] = field(default_factory=dict)
    """By cell, where it stands on each axis; empty outside a matrix."""


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
        where = f" at {self.regime}" if self.regime else ""
        shown = with_interval(4)(self.interval)
        how = "paired by seed" if self.paired else "on other seeds"
        return f"{self.controller} is worse on {self.metric}{where}: {shown} ({how})"


def read_scored(path: Path) -> Scored:
    """From results.json, matrix.json or a folder with one of them. Raises UserError."""
    if path.is_dir():
        names = [name for name in ("matrix.json", "results.json") if (path / name).is_file()]
        if not names:
            raise UserError(
                f"--against {path}: holds neither matrix.json nor results.json; expected the "
                "folder or the file of an earlier comparison"
            )
        path = path / names[0]
    if path.name == "matrix.json":
        return of_matrix(path.parent)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"--against {path}: cannot be read as results ({error}); expected a results.json or "
            "matrix.json that evaluate.py wrote"
        ) from error
    return of_comparison(data, str(path))


def of_comparison(data: Any, where: str) -> Scored:
    """From what `eval.table.as_json` makes of a comparison. Raises UserError for anything else."""
    try:
        figures = {
            name: {
                "attainment": _by_seed(row["runs"], "attainment"),
                "goodput": _by_seed(row["runs"], "goodput_tps"),
            }
            for name, row in data["controllers"].items()
        }
        test = re.sub(r", \d+ paired seeds$", "", data["title"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"--against {where}: holds no finished comparison ({error!r} is missing); expected a "
            "results.json or matrix.json that evaluate.py wrote"
        ) from error
    return Scored(test, where, figures)


def of_matrix(folder: Path) -> Scored:
    """From a finished matrix. Raises UserError for an unfinished one."""
    part = read_part(folder, "matrix")
    scores = scores_of(part.table)
    units = [
        (cell, seed) for cell, of in zip(scores.cells, scores.seeds, strict=True) for seed in of
    ]
    figures = {
        name: {
            metric: dict(zip(units, scores.of[metric][c].ravel().tolist(), strict=True))
            for metric in METRICS
        }
        for c, name in enumerate(scores.controllers)
    }
    places = {
        cell: {axis: scores.places[axis][i] for axis in AXES} for i, cell in enumerate(scores.cells)
    }
    requests = part.summary["requests_a_run"]
    return Scored(f"a matrix of about {requests} requests a run", str(folder), figures, places)


def changes(now: Scored, before: Scored, rng: np.random.Generator) -> list[Change]:
    """Every controller that both have, every metric, everywhere and in every regime.

    Raises UserError where they are of different tests or share no controller.
    """
    if now.test != before.test:
        raise UserError(
            f"--against {before.where}: is of another test ({before.test}; this one is "
            f"{now.test}); compare what was served alike"
        )
    shared = [name for name in now.of if name in before.of]
    if not shared:
        raise UserError(
            f"--against {before.where}: has none of these controllers; it has "
            f"{joined(before.of) if before.of else 'none'}"
        )
    asked = [
        (name, metric, regime, *_kept(regime, now, before, name, metric))
        for name in shared
        for metric in METRICS
        for regime in [EVERYWHERE, *_regimes(now)]
    ]
    asked = [of for of in asked if of[3] and of[4]]
    level = several(LEVEL, len(asked))
    return [
        Change(name, metric, regime, *_apart(mine, theirs, rng, level))
        for name, metric, regime, mine, theirs in asked
    ]


def told(found: Sequence[Change], before: Scored) -> str:
    """The verdict in words."""
    names = list(dict.fromkeys(change.controller for change in found))
    worse = [change.says for change in found if change.is_worse]
    if worse:
        return "; ".join(worse)
    if not found:
        return f"nothing to compare with {before.where}: no request had an objective"
    return f"no controller got worse than in {before.where}: {joined(names)}"


def _apart(
    now: Mapping[Unit, float], before: Mapping[Unit, float], rng: np.random.Generator, level: float
) -> tuple[Interval, bool]:
    """The difference, and whether it is paired: on common seeds, where a cell has two of them."""
    shared = [unit for unit in now if unit in before]
    if len(shared) > len({cell for cell, _ in shared}):
        mine, theirs = [now[unit] for unit in shared], [before[unit] for unit in shared]
        strata = [cell for cell, _ in shared]
        return paired_difference(mine, theirs, rng, level, strata=strata), True
    cells = [cell for cell in dict.fromkeys(c for c, _ in now) if any(c == cell for c, _ in before)]
    ours = [_of(now, cell) for cell in cells]
    return difference_of_means(ours, [_of(before, cell) for cell in cells], rng, level), False


def _of(values: Mapping[Unit, float], cell: str) -> Floats:
    return np.array([value for (other, _), value in values.items() if other == cell])


def _kept(
    regime: str, now: Scored, before: Scored, name: str, metric: str
) -> tuple[dict[Unit, float], dict[Unit, float]]:
    """Values by unit within the regime, of both; what has no score is left out."""

    def within(scored: Scored) -> dict[Unit, float]:
        values = scored.of[name][metric]
        return {
            (cell, seed): value
            for (cell, seed), value in values.items()
            if not np.isnan(value) and (not regime or regime in _of_cell(scored, cell))
        }

    return within(now), within(before)


def _regimes(scored: Scored) -> list[str]:
    """By name, those of axes with more than one value."""
    found: dict[str, dict[str, None]] = {axis: {} for axis in AXES}
    for place in scored.regimes.values():
        for axis, value in place.items():
            found[axis][f"{axis} {value}"] = None
    return [regime for values in found.values() if len(values) > 1 for regime in values]


def _of_cell(scored: Scored, cell: str) -> set[str]:
    return {f"{axis} {value}" for axis, value in scored.regimes[cell].items()}


def _by_seed(runs: Sequence[Mapping[str, Any]], name: str) -> dict[Unit, float]:
    values = {("", int(run["seed"])): run["metrics"][name] for run in runs}
    return {unit: float("nan") if value is None else float(value) for unit, value in values.items()}
