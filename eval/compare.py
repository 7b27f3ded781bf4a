"""Controllers and systems on one server and workload, over held-out seeds: the run behind a table.

Composes arrivals, engines and runner; what is said about the result is `eval.table`'s, and who is
told of the progress the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Controller
from engine.workload import WorkloadConfig
from eval.slug import slug

if TYPE_CHECKING:
    from engine.drawing import Draw
    from engine.observability.outputs import Observers
    from engine.server import Server
    from eval.runner import Announce, Comparison, Store

ARRIVING = 0.6
"""Share of a run in which requests arrive; the rest drains what is there."""


def compare(
    server: Server,
    draw: Draw,
    controllers: Mapping[str, Controller],
    seeds: int,
    seconds: float,
    classes: ClassTable = DEFAULT_CLASSES,
    announce: Announce | None = None,
    trace_out: Path | None = None,
    stored: Store | None = None,
    only: int | None = None,
) -> Comparison:
    """Serve `seeds` held-out arrivals with each controller, `seconds` of engine time each.

    `draw` makes a run's requests, of the workload as `over` has it; what is unfinished when
    the time is over is a miss, for all alike. A system is served under its own settings.
    `trace_out` is a folder for traces, metrics and logs of every run; what `stored` has is not
    served again. `only` is the one seed to serve, None: all. Raises UserError.
    """
    from eval import arrivals, contenders, runner

    settings = replace(server.settings, horizon_s=seconds)
    episodes = arrivals.held_out(draw, seeds)
    return runner.run(
        controllers,
        [episode for episode in episodes if only in (None, episode.seed)],
        contenders.engine_makers(server, controllers, classes, settings),
        announce=announce,
        watch=None if trace_out is None else partial(observed, trace_out, server.name),
        stored=stored,
    )


def over(config: WorkloadConfig, duration_s: float) -> WorkloadConfig:
    """The workload as it is served over `duration_s`.

    Drawn regimes too long to shift within it are shortened. Stated regimes and traces have a length
    of their own, which is kept where it is shorter; of a trace that outlasts the time every episode
    gets another piece, else all seeds would serve the same few requests.
    """
    trace, shifts = config.trace, config.shifts
    if config.regimes or trace is not None:
        if trace is not None and duration_s < config.duration_s:
            trace = replace(trace, draw_start=True)
        return replace(config, duration_s=min(config.duration_s, duration_s), trace=trace)
    if shifts is not None and shifts.duration_s[1] > duration_s:
        shifts = replace(shifts, duration_s=(duration_s / 3, duration_s / 1.5))
    return replace(config, duration_s=duration_s, shifts=shifts)


def observed(folder: Path, model: str, controller: str, seed: int) -> Observers:
    """Observers that write a run's files into a folder of its own. Raises UserError."""
    from engine.observability.outputs import ObserverPaths, observers_from

    run = folder / f"{slug(controller)}-seed{seed}"
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--trace-out {folder}: the folder cannot be made ({error.strerror}); name another"
        ) from error
    paths = ObserverPaths(
        trace_out=run / "trace.json",
        metrics_out=run / "metrics.prom",
        tree_log=run / "trees.jsonl",
        acceptance_out=run / "acceptance.jsonl",
    )
    return observers_from(paths, model)
