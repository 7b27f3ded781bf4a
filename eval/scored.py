"""What results say of each controller, read back to be set against others: `eval.against` judges.

results.json and matrix.json come to the same form here, with what tells one test from another.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import UserError
from eval.matrix.axes import AXES
from eval.matrix.scores import METRICS, scores_of
from eval.parts import read_part

Unit = tuple[str, int]
"""A cell, "" outside a matrix, and a seed."""


@dataclass(frozen=True)
class Scored:
    """What a set of results says of each controller."""

    test: str
    """What was served, in words; with `served` it tells one test from another."""
    where: str
    of: dict[str, dict[str, dict[Unit, float]]]
    """By controller and metric, the value of every unit; nan where there is none."""
    regimes: dict[str, dict[str, str]] = field(default_factory=dict)
    """By cell, where it stands on each axis; empty outside a matrix."""
    served: Mapping[str, Any] = field(default_factory=dict)
    """Options of serving that depart from the usual ones; a matrix has none."""
    faults: dict[str, dict[str, str]] = field(default_factory=dict)
    """By controller and cell, what it raised there; outside a matrix that ends the comparison."""

    @property
    def most_seeds(self) -> int:
        """Of a controller in a cell."""
        counts = [
            Counter(cell for cell, _ in values)
            for by_metric in self.of.values()
            for values in by_metric.values()
        ]
        return max((count for of in counts for count in of.values()), default=0)


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
    """From what `eval.results` makes of a comparison. Raises UserError for anything else."""
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
    served = data.get("served")
    if not isinstance(served, dict):
        raise UserError(
            f"--against {where}: does not say with which options it was served, as older results "
            "do not; serve it again with its own command, by a version that writes them"
        )
    return Scored(test, where, figures, served=served)


def of_matrix(folder: Path) -> Scored:
    """From a finished matrix. Raises UserError for an unfinished one."""
    part = read_part(folder, "matrix")
    scores = scores_of(part.table)
    at = [
        (c, s, (cell, seed))
        for c, (cell, of_cell) in enumerate(zip(scores.cells, scores.seeds, strict=True))
        for s, seed in enumerate(of_cell)
    ]
    figures = {
        name: {
            metric: {unit: float(scores.of[metric][i, c, s]) for c, s, unit in at}
            for metric in METRICS
        }
        for i, name in enumerate(scores.controllers)
    }
    places = {
        cell: {axis: scores.places[axis][i] for axis in AXES} for i, cell in enumerate(scores.cells)
    }
    faults: dict[str, dict[str, str]] = {}
    for fault in scores.faults:
        faults.setdefault(fault["controller"], {})[fault["cell"]] = fault["fault"]
    test = matrix_test(part.summary["requests_a_run"])
    return Scored(test, str(folder), figures, places, faults=faults)


def matrix_test(requests: int) -> str:
    """A matrix in words: cells say the rest by their names."""
    return f"a matrix of about {requests} requests a run"


def _by_seed(runs: Sequence[Mapping[str, Any]], name: str) -> dict[Unit, float]:
    values = {("", int(run["seed"])): run["metrics"][name] for run in runs}
    return {unit: float("nan") if value is None else float(value) for unit, value in values.items()}
