"""How long the matrices take here, as a user types them, and that a killed one goes on.

Capacities and best fixed trees are swept anew, as on a machine that never ran a matrix. The full
one is served for some minutes only: its cells come in a shuffled order, so the rate since the first
piece is that of all of them. It is killed midway and taken up by the same command. What summing up
takes is timed on the served rows, repeated for as many cells as there are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pyarrow
from pyarrow.parquet import read_table

from benchmarks.bench import Bench
from benchmarks.command import ROOT
from benchmarks.figures import Result, UnmeasuredError
from eval.matrix.axes import AXES, Cell, cells_of
from eval.matrix.pieces import FOLDER, PLAN, Plan
from eval.matrix.scores import scores_of
from eval.matrix.serving import Work
from eval.matrix.summary import summary_of
from train.evaluate_config import FULL, MATRIX_SEEDS, REQUESTS

QUICK_SEEDS, QUICK_REQUESTS = 1, 10
QUICK = ("--seeds", str(QUICK_SEEDS), "--requests", str(QUICK_REQUESTS))
SERVED_S, QUICK_SERVED_S = 240.0, 40.0
"""Of the full matrix after it was taken up, from its first piece on."""
LOOK_EVERY_S = 1.0
FEWEST_PIECES = 4
"""Before it is killed, and after."""
PATIENCE_S = 900.0
"""For these pieces."""


def small(bench: Bench, _: str) -> Result:
    """Minutes from the command to its results; short runs are stretched by their requests."""
    with tempfile.TemporaryDirectory(prefix="draftgym-matrix-") as work:
        out = Path(work) / "small"
        begun = monotonic()
        run = _started("small", out, QUICK if bench.quick else ())
        seen = 0
        while run.poll() is None:
            sleep(LOOK_EVERY_S)
            if (pieces := _pieces(out)) > seen:
                seen = pieces
                bench.say(f"matrix small: {seen} pieces are there")
        minutes = (monotonic() - begun) / 60.0
        if run.returncode:
            raise UnmeasuredError(f"evaluate.py --matrix small failed: {_last_line(out)}")
        summary = json.loads((out / "matrix.json").read_text(encoding="utf-8"))
    cells, controllers = summary["cells"], len(summary["controllers"])
    verdict = summary["overall"]["verdicts"]
    return Result(
        minutes,
        f"{minutes:.1f} min",
        f"{cells} cells × {controllers} controllers × {summary['seeds_a_cell']} seeds of about "
        f"{summary['requests_a_run']} requests, {len(summary['faults'])} faults; "
        f"{verdict['attainment']['says']}; {verdict['goodput']['says']}",
        {name: summary[name] for name in ("cells", "controllers", "overall", "regimes", "faults")},
        broken=_complaint(summary),
    )


def _complaint(summary: Mapping[str, Any]) -> str:
    """What would make its minutes worth nothing; "" if nothing does."""
    if summary["cells"] < 200 or len(summary["controllers"]) < 3:
        return "fewer cells or controllers than asked"
    if summary["faults"]:
        return f"a controller raised in {len(summary['faults'])} cells"
    return ""


def full(bench: Bench, _: str) -> Result:
    """Hours for all cells at the rate of those served, after a kill as before."""
    with tempfile.TemporaryDirectory(prefix="draftgym-matrix-") as work:
        out = Path(work) / "full"
        options = QUICK if bench.quick else ()
        before = _served_for(bench, out, options, 0.0)
        kept = _contents(out)
        after = _served_for(bench, out, options, QUICK_SERVED_S if bench.quick else SERVED_S)
        changed = [name for name, content in kept.items() if _contents(out).get(name) != content]
        bench.say("matrix full: summing up as many cells")
        seeds = QUICK_SEEDS if bench.quick else MATRIX_SEEDS
        plan = Plan("full", Work(FULL, seeds, QUICK_REQUESTS if bench.quick else REQUESTS))
        summing_s = _summing_s(plan, pyarrow.concat_tables(map(read_table, _paths(out))))
    hours = (len(cells_of("full")) * after["s_a_cell"] + summing_s) / 3600.0
    return Result(
        hours,
        f"{hours:.1f} h",
        f"{len(cells_of('full')):,} cells × {len(FULL)} controllers × "
        f"{seeds} seeds; {after['cells']} cells in {after['seconds'] / 60:.1f} min; summing up "
        f"{summing_s / 60:.1f} min; killed −9 after {len(kept)} pieces and taken up from "
        f"there; what it told: {after['told']}",
        {"before": before, "after": after, "kept": len(kept), "summing_s": summing_s},
        broken=f"pieces were served again: {changed}" if changed else "",
    )


def _summing_s(plan: Plan, rows: pyarrow.Table) -> float:
    """Seconds from the rows of all cells to what is said of them."""
    spread = repeated(rows, plan.chosen)
    begun = monotonic()
    summary_of(plan, spread, scores_of(spread), np.random.default_rng(0))
    return monotonic() - begun


def repeated(rows: pyarrow.Table, cells: Sequence[Cell]) -> pyarrow.Table:
    """Rows for all `cells`: those of the served ones by turns, under the others' names."""
    names = np.array(rows["cell"].to_pylist())
    served = [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
    taken = [served[i % len(served)] for i in range(len(cells))]
    found = rows.take(pyarrow.array(np.concatenate(taken)))
    places = [{"cell": cell.name, **cell.places} for cell in cells]
    of_row = np.repeat(np.arange(len(cells)), [len(of) for of in taken]).tolist()
    for column in ("cell", *AXES):
        texts = pyarrow.array([places[i][column] for i in of_row])
        found = found.set_column(found.schema.get_field_index(column), column, texts)
    return found


def _served_for(bench: Bench, out: Path, options: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run until so long after the first new piece, and until there are some, then kill it."""
    there = _pieces(out)
    bench.say(f"matrix full: from piece {there} on")
    begun, first = monotonic(), None
    run = _started("full", out, options)
    try:
        while True:
            sleep(LOOK_EVERY_S)
            made, now = _pieces(out) - there, monotonic()
            if first is None and made:
                first, first_made = now, made
            if first is not None and now - first >= seconds and made - first_made >= FEWEST_PIECES:
                break
            if run.poll() is not None:
                raise UnmeasuredError(f"evaluate.py --matrix full ended: {_last_line(out)}")
            if now - begun > seconds + PATIENCE_S:
                raise UnmeasuredError(f"only {made} pieces were served in {PATIENCE_S:g} s")
        cells, spent_s = _cells(out, made - first_made), now - first
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    told = re.findall(r"\S+ s a cell, \S+ for all · \S+ left", _printed(out))
    return {
        "cells": cells,
        "seconds": spent_s,
        "s_a_cell": spent_s / cells,
        "told": told[-1] if told else "nothing yet",
    }


def _started(size: str, out: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """The command, with a cache of its own."""
    with _log(out).open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, "evaluate.py", "--matrix", size, "--out", str(out), *options],
            cwd=ROOT,
            env={**os.environ, "DRAFTGYM_CACHE": str(out.parent / "cache")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _log(out: Path) -> Path:
    return out.parent / "printed.txt"


def _printed(out: Path) -> str:
    return _log(out).read_text(encoding="utf-8")


def _paths(out: Path) -> list[Path]:
    return sorted((out / FOLDER).glob("*.parquet"))


def _contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in _paths(out)}


def _pieces(out: Path) -> int:
    return len(_paths(out))


def _cells(out: Path, pieces: int) -> int:
    """Of so many pieces, by what the plan says that a piece holds."""
    plan = json.loads((out / FOLDER / PLAN).read_text(encoding="utf-8"))
    return pieces * int(plan["cells_a_piece"])


def _last_line(out: Path) -> str:
    lines = _printed(out).strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
