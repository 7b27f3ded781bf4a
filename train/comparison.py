"""`evaluate.py` on one workload: every run kept when it is done, on replay in several processes.

A run that was cut goes on when the same command is typed again. What is compared and how far it is
shows `train.evaluation`; figures, verdicts and files are `eval`'s.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.workload import FIRST_HELD_OUT_SEED, PromptSet, WorkloadConfig
from eval import best_fixed
from eval.compare import ARRIVING, compare, over
from eval.contenders import named, subject_of
from eval.kept_runs import Kept, made_with
from eval.parts import typed
from eval.pool import each_made
from eval.results import write_results
from eval.slug import slug
from eval.stored_runs import StoredRuns, run_of
from train import evaluation
from train.command_folder import make_out, with_out
from train.command_line import RUNS, leaves
from train.config import Serving
from train.evaluate_config import EvaluateConfig
from train.evaluation import Stopped, closing, departures, drawing, served_workload
from train.interrupt import StopRequest
from train.progress import ProgressLine

if TYPE_CHECKING:
    from rich.console import Console

    from engine.drawing import Draw
    from engine.server import Server
    from eval.table import Report

UNFINISHED = "comparison.unfinished"
MEASURED, MEASUREMENTS = "measured", ("unloaded_tpot_s", "full_batch_s", "prefill_s_per_token")
"""What a live server measures when it is loaded, and under which name it is kept."""


def evaluate(config: EvaluateConfig, console: Console) -> Path:
    """Compare, show, write results.json, .md and .parquet; returns their folder.

    Raises UserError, and KeyboardInterrupt where Ctrl-C asked for a stop, saying how to go on.
    """
    serving = config.serving
    named(config.policy)  # a wrong name is told before seconds of loading, and so are wrong prompts
    shown = served_workload(serving)
    PromptSet.load(serving.prompts)
    out = config.out or RUNS / f"evaluate-{slug(shown.name)}-{datetime.now():%Y%m%d-%H%M%S}"
    if config.out is not None:
        make_out(out)  # what keeps it from being made is told now, not when the results are there
    with closing(evaluation.load_server(serving)) as server, StopRequest() as stop:
        console.print(evaluation.headline(server, serving, shown), highlight=False)
        stored = StoredRuns(Kept(out / UNFINISHED, made(config, server)))
        _as_measured(server, stored.kept)
        try:
            if config.at_once > 1:
                _serve_in_processes(config, server, stored, console, stop)
            report = _compared(config, server, stored, console, stop)
        except Stopped:
            again = typed("evaluate.py", with_out(sys.argv[1:], out))
            console.print(f"what is done is kept; {again} goes on", highlight=False, soft_wrap=True)
            raise KeyboardInterrupt from None
    evaluation.show(report, console)
    write_results(report, out, departures(serving), typed("evaluate.py", sys.argv[1:]))
    stored.kept.forget()
    return out


def made(config: EvaluateConfig, server: Server) -> dict[str, Any]:
    """What decides a run of the comparison, as JSON."""
    from engine.replay.capacity_store import key_of
    from engine.replay.server import ReplayServer

    prompts, workload = config.serving.prompts, served_workload(config.serving)
    return made_with(
        dict(zip(named(config.policy), config.policy, strict=True)),
        server=key_of(server) if isinstance(server, ReplayServer) else repr(server.identity),
        prompts=_digest(prompts),
        workload=repr(workload),
        trace=None if workload.trace is None else _digest(workload.trace.parsed.path),
        seconds=config.seconds,
        trace_out=str(config.trace_out),
        **{f"--{name.replace('_', '-')}": str(v) for name, v in leaves(config.serving).items()},
    )


def _digest(path: Path | None) -> str | None:
    """Of a file, or of all files of a folder."""
    if path is None:
        return None
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _as_measured(server: Server, kept: Kept) -> None:
    """Let a live server promise what it did when the first of the kept runs was served.

    Objectives and loads are multiples of what is measured at every start.
    """
    from engine.serving import LiveServer

    if not isinstance(server, LiveServer):
        return
    before = kept.load(MEASURED)
    if before is None:
        kept.save(MEASURED, {name: getattr(server, name) for name in MEASUREMENTS})
    else:
        for name in MEASUREMENTS:
            setattr(server, name, before[name])


def _compared(
    config: EvaluateConfig,
    server: Server,
    stored: StoredRuns,
    console: Console,
    stop: StopRequest,
) -> Report:
    controllers = named(config.policy)
    return evaluation.compare(
        server,
        config.serving,
        controllers,
        subject_of(config.policy, list(controllers)),
        config.served_seeds,
        config.seconds,
        np.random.default_rng(config.seed),
        console,
        stop,
        trace_out=config.trace_out,
        stored=stored,
    )


@dataclass(frozen=True)
class Task:
    """A run in another process: a controller, as `policies.registry` takes it, under a seed."""

    serving: Serving
    seconds: float
    trace_out: Path | None
    name: str
    spec: str
    seed: int


def served(task: Task) -> dict[str, Any]:
    """The run as JSON has it."""
    server, draw, workload = _world(task.serving, task.seconds)
    controllers = named([task.spec])
    # One that a sweep has to find was found before the first run, and is read from the cache.
    best_fixed.settle(controllers, server, workload, task.seconds)
    count = task.seed + 1 - FIRST_HELD_OUT_SEED
    found = compare(
        server, draw, controllers, count, task.seconds, trace_out=task.trace_out, only=task.seed
    )
    return asdict(found.runs[task.name][0])


def _serve_in_processes(
    config: EvaluateConfig,
    server: Server,
    stored: StoredRuns,
    console: Console,
    stop: StopRequest,
) -> None:
    """Let `stored` have every run. Raises Stopped when a stop was requested before."""
    workload = over(served_workload(config.serving), ARRIVING * config.seconds)
    best_fixed.settle(named(config.policy), server, workload, config.seconds)
    tasks = [
        Task(config.serving, config.seconds, config.trace_out, name, spec, seed)
        for seed in range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + config.served_seeds)
        for name, spec in zip(named(config.policy), config.policy, strict=True)
    ]
    left = [task for task in tasks if stored.load(task.name, task.seed) is None]
    done = len(tasks) - len(left)
    with ProgressLine(console, "compare", len(tasks)) as line:
        line.update(done, f"{done} of {len(tasks)} runs")
        for task, run in each_made(served, left, config.at_once, lambda: stop.requested):
            stored.save(run_of(run))
            done += 1
            line.update(done, f"{done} of {len(tasks)} runs", task.name)
    if done < len(tasks):
        raise Stopped


@lru_cache(maxsize=1)
def _world(serving: Serving, seconds: float) -> tuple[Server, Draw, WorkloadConfig]:
    """Loaded once a process."""
    server = evaluation.load_server(serving)
    workload = over(served_workload(serving), ARRIVING * seconds)
    return server, drawing(server, serving, workload, held_out=True), workload
