"""The matrix's scores as arrays: what is compared, by controller, cell and seed.

Pairs differ a hundredfold in speed, so goodput is in multiples of each cell's capacity, the unit of
its load. A controller that raised in a cell has no score there, and neither have requests without
an objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.protocol import Bools, Floats
from eval.matrix.axes import AXES
from eval.matrix.rows import ALL

if TYPE_CHECKING:
    import pyarrow

METRICS = ("attainment", "goodput")
"""Both better when higher: share of requests, and multiples of capacity."""


@dataclass(frozen=True)
class Scores:
    """Of each metric [controllers, cells, seeds], nan where there is none."""

    controllers: tuple[str, ...]
    cells: tuple[str, ...]
    places: dict[str, list[str]]
    """[cells] by axis."""
    of: dict[str, Floats]
    seeds: list[list[int]]
    """[cells] of each."""
    faults: list[dict[str, str]]
    """Cell, controller and what it raised."""

    def within(self, axis: str, value: str) -> Bools:
        """[cells] that stand there."""
        return np.array([place == value for place in self.places[axis]])

    def values(self, axis: str) -> list[str]:
        """Where cells stand on an axis, in order."""
        return list(dict.fromkeys(self.places[axis]))


def scores_of(rows: pyarrow.Table) -> Scores:
    """The scores in a matrix's rows."""
    import pyarrow.compute as pc

    wanted = ["cell", *AXES, "controller", "fault", "seeds", "capacity_tps"]
    wanted += ["attainment_by_seed", "goodput_by_seed"]
    together = rows.filter(pc.equal(rows["slo_class"], ALL)).select(wanted).to_pylist()
    controllers = tuple(dict.fromkeys(row["controller"] for row in together))
    first = {row["cell"]: row for row in together}
    cells = tuple(first)
    at_cell, at_controller = _places(cells), _places(controllers)
    most = max((len(row["seeds"]) for row in together), default=0)
    of = {m: np.full((len(controllers), len(cells), most), np.nan) for m in METRICS}
    faults = []
    for row in together:
        at = at_controller[row["controller"]], at_cell[row["cell"]]
        if row["fault"] is not None:
            faults.append({key: row[key] for key in ("cell", "controller", "fault")})
            continue
        of["attainment"][at] = _floats(row["attainment_by_seed"])
        of["goodput"][at] = _floats(row["goodput_by_seed"]) / row["capacity_tps"]
    return Scores(
        controllers,
        cells,
        {axis: [first[cell][axis] for cell in cells] for axis in AXES},
        of,
        [first[cell]["seeds"] for cell in cells],
        faults,
    )


def _places(names: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _floats(values: list[Any]) -> Floats:
    return np.array(values, np.float64)
