"""Comparing controllers on a live server: `evaluate.py`, and the end of `train.py`.

Composes workload, server and controllers; running, statistics and table are `eval`'s.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Controller
from engine.workload import PRESETS, PromptSet, WorkloadConfig, workload
from policies import registry
from train.command_line import RUNS
from train.config import EvaluateConfig, Serving

if TYPE_CHECKING:
    from rich.console import Console

    from engine.drawing import Draw
    from engine.observability.outputs import Observers
    from engine.serving import LiveServer
    from eval.table import Report
    from train.interrupt import StopRequest

ARRIVING = 0.6
PROMPT_TOKENS = 96
"""Share of a run in which requests arrive; the rest drains what is there."""


class Stopped(Exception):
    """A stop was asked for between two runs of a comparison."""


def served_workload(serving: Serving) -> WorkloadConfig:
    """The workload that the options name. Raises UserError.

    A load replaces the workload's own; where regimes set it, theirs are multiplied.
    """
    lengths: dict[str, Any] = {"max_tokens": serving.max_tokens}
    if serving.prompt_tokens is not None or serving.workload in PRESETS:
        lengths |= {"prompt_tokens": serving.prompt_tokens or PROMPT_TOKENS, "truncate": True}
    config = workload(serving.workload, **lengths)
    load = serving.load
    if load is None:
        return config
    if config.shifts is not None:
        low, high = config.shifts.load
        return replace(config, shifts=replace(config.shifts, load=(low * load, high * load)))
    if config.regimes:
        regimes = tuple(replace(r, load=r.load * load) for r in config.regimes)
        return replace(config, regimes=regimes)
    return workload(serving.workload, **lengths, load=load)


def load_server(serving: Serving) -> LiveServer:
    """The live server that the options name; takes seconds. Raises UserError."""
    from engine.overload import OverloadRule
    from engine.serving import LiveConfig, LiveServer

    server = LiveServer.load(
        LiveConfig(
            model=serving.model,
            draft_head=serving.draft_head,
            dtype=serving.dtype,
            threads=serving.threads,
            drafter=serving.drafter,
            draft_model=serving.draft_model,
            page_size=serving.page_size,
            kv_pool_tokens=serving.kv_pool_tokens,
        )
    )
    server.settings = replace(
        server.settings, order=serving.order, overload=OverloadRule(serving.overload)
    )
    return server


def drawing(server: LiveServer, serving: Serving, config: WorkloadConfig) -> Draw:
    """Requests of `config` for `server` by generator."""
    from engine import drawing as requests

    return requests.drawing(server, config, PromptSet.load(serving.prompts))


def named(specs: Sequence[str], option: str = "--policy") -> dict[str, Controller]:
    """Controllers by the name that the table shows. Raises UserError for an unknown one.

    `option` is the flag that gave them.
    """
    found: dict[str, Controller] = {}
    for spec in specs:
        try:
            controller = registry.make(spec)
        except UserError as error:
            raise UserError(f"{option} {error} (python evaluate.py --list shows them)") from error
        name = controller.name
        if registry.exported_folder(spec) is not None:
            folder = Path(spec).resolve()
            run = folder.parent if folder.name == "controller" else folder
            name = f"{name} ({run.name})"
        if name in found:
            raise UserError(f"{option} {spec}: {name} is there already; name each controller once")
        found[name] = controller
    return found


def compare(
    server: LiveServer,
    serving: Serving,
    controllers: Mapping[str, Controller],
    subject: str,
    seeds: int,
    seconds: float,
    rng: np.random.Generator,
    console: Console,
    stop: StopRequest,
    classes: ClassTable = DEFAULT_CLASSES,
    trace_out: Path | None = None,
) -> Report:
    """Serve `seeds` held-out arrivals with each controller, `seconds` of engine time each.

    Requests arrive in the first part of a run; those unfinished at its end are misses, for all
    alike. `trace_out` is a folder for traces, metrics and logs of every run. Raises Stopped when
    `stop` was requested between two runs.
    """
    from eval import arrivals, runner, table
    from train.progress import ProgressLine

    config = shortened(served_workload(serving), ARRIVING * seconds)
    episodes = arrivals.held_out(drawing(server, serving, config), seeds)
    settings = replace(server.settings, horizon_s=seconds)
    total = seeds * len(controllers)

    with ProgressLine(console, "compare", total) as line:

        def announce(name: str, done: int, of: int) -> None:
            if stop.requested:
                raise Stopped
            line.update(done, f"run {done + 1} of {of}", name, left_s=(of - done) * seconds)

        comparison = runner.run(
            controllers,
            episodes,
            lambda requests: server.engine(requests, classes, settings),
            announce=announce,
            watch=None if trace_out is None else partial(observed, trace_out, serving.model),
        )
        line.update(total, f"{total} runs")
    title = f"{described(serving, config)}, {seconds:g} s each"
    if config.shifts is not None:
        low, high = config.shifts.duration_s
        title += f", regimes of {low:.2g} to {high:.2g} s"
    return table.build(comparison, classes, title, subject, rng)


def observed(folder: Path, model: str, controller: str, seed: int) -> Observers:
    """Observers that write a run's files into a folder of its own. Raises UserError."""
    from engine.observability.outputs import ObserverPaths, observers_from

    run = folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', controller).strip('-')}-seed{seed}"
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


def shortened(config: WorkloadConfig, duration_s: float) -> WorkloadConfig:
    """The workload over `duration_s`; regimes too long to shift within it are shortened."""
    shifts = config.shifts
    if shifts is not None and shifts.duration_s[1] > duration_s:
        shifts = replace(shifts, duration_s=(duration_s / 3, duration_s / 1.5))
    return replace(config, duration_s=duration_s, shifts=shifts)


def described(serving: Serving, config: WorkloadConfig) -> str:
    """The workload in a few words."""
    if config.load is not None:
        return f"{config.name} load at {config.load:g} × capacity"
    scaled = "" if serving.load is None else f" × {serving.load:g}"
    return f"{config.name} load{scaled}"


def show(report: Report, console: Console) -> None:
    """The table, the verdict in words and what to read it with."""
    from eval import table

    console.print(table.as_rich(report))
    console.print(report.verdict, highlight=False, markup=False)
    for note in report.notes:
        console.print(f"({note})", style="dim", highlight=False, markup=False)


def evaluate(config: EvaluateConfig, console: Console) -> Path:
    """`evaluate.py`: compare, show, write results.json and results.md; returns their folder."""
    serving = config.serving
    controllers = named(config.policy)
    shown = served_workload(serving)
    PromptSet.load(serving.prompts)  # what is wrong with them is told before seconds of loading
    from engine.atomic_write import write_atomic
    from eval import table
    from eval.versions import versions
    from train.interrupt import StopRequest

    now = datetime.now()
    out = config.out or RUNS / f"evaluate-{shown.name}-{now:%Y%m%d-%H%M%S}"
    if config.out is not None:
        try:  # told now, not when the results are there
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"--out {out}: the folder cannot be made ({error.strerror}); name another"
            ) from error
    server = load_server(serving)
    console.print(f"{server.describe()} · {described(serving, shown)}", highlight=False)
    rng = np.random.default_rng(config.seed)
    with StopRequest() as stop:
        try:
            report = compare(
                server,
                serving,
                controllers,
                subject_of(config.policy, list(controllers)),
                config.seeds,
                config.seconds,
                rng,
                console,
                stop,
                trace_out=config.trace_out,
            )
        except Stopped:
            raise KeyboardInterrupt from None  # nothing to keep
    show(report, console)
    values = {**table.as_json(report), "versions": versions()}
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(out / "results.json", text + "\n")
    write_atomic(out / "results.md", table.as_markdown(report))
    return out


def subject_of(specs: Sequence[str], names: Sequence[str]) -> str:
    """Whom the verdict is about: the first learned controller, else the first."""
    learned = [
        name
        for spec, name in zip(specs, names, strict=True)
        if registry.exported_folder(spec) is not None
    ]
    return learned[0] if learned else names[0]


def list_controllers() -> str:
    """Name and summary of each, one a line."""
    width = max(map(len, registry.ENTRIES))
    return "\n".join(f"{n:<{width}}  {registry.ENTRIES[n].summary}" for n in registry.names())


def seconds_a_run(total_s: float, seeds: int, controllers: int) -> float:
    """How long each controller may serve each seed, in tenths of a second."""
    return max(math.floor(10.0 * total_s / (seeds * controllers)) / 10.0, 0.1)
