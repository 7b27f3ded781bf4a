"""Going through all cells in processes, each few of them kept when they are done.

The folder holds plan.json, which says what is served and by which versions, and a Parquet file for
every piece. A run that was cut, killed even, is taken up by the same command: pieces that are there
are not served again. Cells are served in a shuffled order, so that the time left, told from what is
done, is that of any cells.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.kept_runs import made_with
from eval.matrix.axes import Cell, Size, cells_of
from eval.matrix.rows import table
from eval.matrix.serving import Work, names_of, served
from eval.parts import differing, parquet
from eval.pool import PROCESSES, each_made
from eval.versions import versions

if TYPE_CHECKING:
    import pyarrow

FOLDER, PLAN = "matrix.pieces", "plan.json"
FORGOTTEN = "matrix.forgotten"
"""What the folder is called while it is deleted."""
SCHEMA = 1
RUNS_A_PIECE = 12
"""Of a controller in a cell, about: some ten seconds, which are what a kill loses."""


@dataclass(frozen=True)
class Plan:
    """What is served: which cells, and with whom."""

    size: Size
    work: Work
    cells: tuple[Cell, ...] = ()
    """Other ones than the size has; (): all of them."""

    @property
    def chosen(self) -> list[Cell]:
        """The cells in the order of their axes."""
        return list(self.cells) or cells_of(self.size)

    @property
    def cells_a_piece(self) -> int:
        """The last piece may have fewer."""
        return max(RUNS_A_PIECE // len(self.work.policies), 1)

    @property
    def pieces(self) -> list[tuple[int, list[Cell]]]:
        """Cells in a shuffled order, always the same one, few at a time."""
        cells, step = self.chosen, self.cells_a_piece
        order = np.random.default_rng(0).permutation(len(cells)).tolist()
        starts = range(0, len(cells), step)
        return [(i, [cells[c] for c in order[s : s + step]]) for i, s in enumerate(starts)]


@dataclass
class Progress:
    """How far it is, for who shows it."""

    cells: int
    done: int = 0
    faults: int = 0
    before: int = 0
    """Of those done, by an earlier run."""
    begun_s: float = field(default_factory=monotonic)
    first_s: float | None = None
    """When the first piece of this run was done: what comes before is loading and compiling."""
    first_done: int = 0

    @property
    def rate_s(self) -> float | None:
        """Seconds a cell takes, of all processes together, since this run's first piece."""
        made = self.done - self.first_done
        if self.first_s is None or made <= 0:
            return None
        return (monotonic() - self.first_s) / made

    @property
    def left_s(self) -> float | None:
        """Seconds to go at that rate."""
        return None if self.rate_s is None else (self.cells - self.done) * self.rate_s

    def add(self, cells: int, faults: int) -> None:
        """A piece is done."""
        self.done += cells
        self.faults += faults
        if self.first_s is None:
            self.first_s, self.first_done = monotonic(), self.done


def serve_all(
    plan: Plan,
    folder: Path,
    told: Callable[[Progress], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    processes: int = PROCESSES,
) -> bool:
    """Serve what is not there yet into `folder`; whether all of it is there now.

    `told` hears of every piece. Raises UserError for a folder of another plan or version, and for
    controllers that nobody knows.
    """
    pieces = folder / FOLDER
    take_up(plan, pieces)
    left = [(i, cells) for i, cells in plan.pieces if not _path(pieces, i).is_file()]
    progress = Progress(len(plan.chosen))
    progress.done = progress.before = progress.cells - sum(len(cells) for _, cells in left)
    told(progress)
    do = partial(_do, plan.work, pieces)
    for (_, cells), faults in each_made(do, left, processes, stopped):
        progress.add(len(cells), faults)
        told(progress)
    return progress.done == progress.cells


def take_up(plan: Plan, pieces: Path) -> None:
    """Begin or go on in that folder of pieces.

    Raises UserError where something else was begun, and for pieces that no plan vouches for.
    """
    names = names_of(plan.work.policies)
    made = made_with(dict(zip(names, plan.work.policies, strict=True)))
    told = {
        "schema": SCHEMA,
        "size": plan.size,
        "cells": [cell.name for cell in plan.cells],
        **asdict(plan.work),
        "policies": made["policies"],
        "exports": made["exports"],
        "cells_a_piece": plan.cells_a_piece,
    }
    path = pieces / PLAN
    if not path.is_file():
        if any(pieces.glob("*.parquet")):
            raise UserError(
                f"{pieces} holds pieces without {PLAN}, so nobody can tell what they are of; "
                "delete that folder, or name a new one with --out"
            )
        pieces.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({**told, "versions": versions()}, indent=1) + "\n")
        return
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        begun_with = dict(found.pop("versions"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); name a new folder with --out") from error
    if other := [name for name in told if found.get(name) != told[name]]:
        raise UserError(
            f"--out {pieces.parent} holds a matrix that was begun with other {', '.join(other)}; "
            "repeat its own command to go on, or name a new folder"
        )
    if other_versions := differing(begun_with, versions()):
        raise UserError(
            f"--out {pieces.parent} was begun by another version ({other_versions}); a set is of "
            "one version: go on with that one, or name a new folder"
        )


def served_by(folder: Path) -> dict[str, Any]:
    """The versions that the plan was begun with, and so all of its pieces were."""
    plan = json.loads((folder / FOLDER / PLAN).read_text(encoding="utf-8"))
    return dict(plan["versions"])


def read_pieces(plan: Plan, folder: Path) -> pyarrow.Table:
    """All rows, cells in the order of their axes and not of serving. Raises UserError."""
    import pyarrow as pa
    from pyarrow import parquet as files

    paths = [_path(folder / FOLDER, i) for i, _ in plan.pieces]
    if missing := sum(not path.is_file() for path in paths):
        raise UserError(
            f"{folder} holds an unfinished matrix ({missing} of {len(paths)} pieces are missing); "
            "repeat its command, which goes on where it was cut"
        )
    rows = pa.concat_tables([files.read_table(path) for path in paths])
    place = {cell.name: i for i, cell in enumerate(plan.chosen)}
    order = np.argsort([place[name] for name in rows["cell"].to_pylist()], kind="stable")
    return rows.take(pa.array(order))


def forget_pieces(folder: Path) -> None:
    """They are in one file now.

    Renamed first: a kill while they are deleted must leave nothing that could be taken up.
    """
    gone = folder / FORGOTTEN
    shutil.rmtree(gone, ignore_errors=True)  # of a run that was killed right here
    (folder / FOLDER).rename(gone)
    shutil.rmtree(gone)


def _do(work: Work, pieces: Path, piece: tuple[int, list[Cell]]) -> int:
    """Serve a piece and write it; how many controllers raised in its cells."""
    number, cells = piece
    rows = [row for cell in cells for row in served(cell, work)]
    write_atomic(_path(pieces, number), parquet(table(rows)))
    return sum("fault" in row for row in rows)


def _path(pieces: Path, number: int) -> Path:
    return pieces / f"{number:05d}.parquet"
