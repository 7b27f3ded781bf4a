"""`evaluate.py --matrix`: all cells in processes beside this one, and what they come to.

Shows how far it is and what came out; cells, rows and verdicts are `eval.matrix`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import UserError
from eval.matrix.pieces import FOLDER, Plan, Progress, serve_all
from eval.matrix.scores import METRICS
from eval.matrix.serving import Work
from eval.parts import typed
from eval.statistics import Interval
from eval.writing import with_interval
from train.command_folder import make_out, with_out
from train.command_line import RUNS
from train.evaluate_config import EvaluateConfig
from train.progress import ProgressLine, clock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DONE = "matrix.json"


def evaluate_matrix(config: EvaluateConfig, console: Console) -> Path:
    """Serve, sum up, show, write matrix.parquet and matrix.json; returns their folder.

    Raises UserError, also where Ctrl-C asked for a stop, saying how to go on.
    """
    assert config.matrix is not None
    from eval.matrix.summary import write_matrix
    from train.interrupt import StopRequest

    plan = Plan(config.matrix, Work(config.policies, config.served_seeds, config.requests))
    out = config.out or RUNS / f"matrix-{config.matrix}-{datetime.now():%Y%m%d-%H%M%S}"
    make_out(out)
    if (out / DONE).is_file() and not (out / FOLDER).is_dir():
        raise UserError(f"--out {out}: holds a finished matrix; name a new folder")
    command = typed("evaluate.py", with_out(sys.argv[1:], out))
    cells = len(plan.chosen)
    console.print(
        f"matrix {config.matrix} · {cells:,} cells × {len(plan.work.policies)} controllers × "
        f"{plan.work.seeds} seeds of about {plan.work.requests} requests · replay, modelled time",
        highlight=False,
    )
    console.print(f"kept in {out}; after a stop {command} goes on", highlight=False, soft_wrap=True)
    with ProgressLine(console, "matrix", cells) as line, StopRequest() as stop:

        def told(progress: Progress) -> None:
            line.update(progress.done, *_words(progress), left_s=progress.left_s)

        complete = serve_all(plan, out, told, lambda: stop.requested, config.at_once)
    if not complete:
        raise KeyboardInterrupt
    console.print("summing up", highlight=False)
    summary = write_matrix(plan, out, command, np.random.default_rng(config.seed))
    show(summary, console)
    return out


def show(summary: Mapping[str, Any], console: Console) -> None:
    """The controllers everywhere, the winners by regime, and the notes."""
    console.print(everywhere(summary))
    console.print(winners(summary))
    for note in summary["notes"]:
        console.print(f"({note})", style="dim", highlight=False, markup=False)


def everywhere(summary: Mapping[str, Any]) -> Table:
    """Controllers by metric, over all cells."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("over all cells")
    for title in ("attainment %, IQM", "attainment %, mean", "goodput × capacity, IQM", "mean"):
        table.add_column(title, justify="right")
    for name, of in summary["overall"]["controllers"].items():
        cells = [
            _written(of[key], 100 if metric == "attainment" else 1)
            for metric in METRICS
            for key in (metric, f"{metric}_mean")
        ]
        table.add_row(name, *cells)
    return table


def winners(summary: Mapping[str, Any]) -> Table:
    """A line for all cells and for every regime: what may be said of goodput and attainment."""
    from rich import box
    from rich.table import Table

    table = Table("regime", box=box.SIMPLE_HEAD)
    for metric in METRICS:
        table.add_column(metric, overflow="fold")
    rows = [("everywhere", summary["overall"])]
    rows += [(f"{of['axis']} {of['value']}", of) for of in summary["regimes"]]
    for name, of in rows:
        table.add_row(name, *(of["verdicts"][metric]["says"] for metric in METRICS))
    return table


def _written(figure: Mapping[str, float], scale: float) -> str:
    mean, low, high = (scale * figure[key] for key in ("value", "low", "high"))
    return with_interval(1 if scale > 1 else 3)(Interval(mean, low, high, seeds=0))


def _words(progress: Progress) -> list[str]:
    words = [f"{progress.done:,} of {progress.cells:,} cells"]
    if progress.before:
        words.append(f"{progress.before:,} of them before")
    if progress.faults:
        words.append(f"a controller raised in {progress.faults}")
    if progress.rate_s is not None:
        words.append(
            f"{progress.rate_s:.2f} s a cell, {clock(progress.rate_s * progress.cells)} for all"
        )
    return words
