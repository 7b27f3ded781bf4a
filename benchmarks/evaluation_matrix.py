"""How long the matrices take here, as a user types them, and that a killed one goes on.

Capacities and best fixed trees are swept anew, as on a machine that never ran a matrix. The full
one is served for some minutes only: its cells come in a shuffled order, so the rate since the first
piece is that of all of them. It is killed midway and taken up by the same command.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.bench import Bench
from benchmarks.command import ROOT
from benchmarks.figures import Result, UnmeasuredError
from eval.matrix.axes import cells_of
from eval.matrix.pieces import FOLDER, PLAN
from train.evaluate_config import FULL, MATRIX_SEEDS

QUICK = ("--seeds", "1", "--requests", "10")
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
        broken="" if cells >= 200 and controllers >= 3 else "fewer cells or controllers than asked",
    )


def full(bench: Bench, _: str) -> Result:
    """Hours for all cells at the rate of those served, after a kill as before."""
    with tempfile.TemporaryDirectory(prefix="draftgym-matrix-") as work:
        out = Path(work) / "full"
        options = QUICK if bench.quick else ()
        before = _served_for(bench, out, options, 0.0)
        kept = _contents(out)
        after = _served_for(bench, out, options, QUICK_SERVED_S if bench.quick else SERVED_S)
        changed = [name for name, content in kept.items() if _contents(out).get(name) != content]
    hours = len(cells_of("full")) * after["s_a_cell"] / 3600.0
    return Result(
        hours,
        f"{hours:.1f} h",
        f"{len(cells_of('full')):,} cells × {len(FULL)} controllers × "
        f"{1 if bench.quick else MATRIX_SEEDS} seeds; {after['cells']} cells in "
        f"{after['seconds'] / 60:.1f} min; killed −9 after {len(kept)} pieces and taken up from "
        f"there; what it told: {after['told']}",
        {"before": before, "after": after, "kept": len(kept)},
        broken=f"pieces were served again: {changed}" if changed else "",
    )


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


def _contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / FOLDER).glob("*.parquet")}


def _pieces(out: Path) -> int:
    return len(list((out / FOLDER).glob("*.parquet")))


def _cells(out: Path, pieces: int) -> int:
    """Of so many pieces, by what the plan says that a piece holds."""
    plan = json.loads((out / FOLDER / PLAN).read_text(encoding="utf-8"))
    return pieces * int(plan["cells_a_piece"])


def _last_line(out: Path) -> str:
    lines = _printed(out).strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
