"""Comparing controllers on a server, live or replay: for `evaluate.py` and the end of `train.py`.

Turns options into workload, server and controllers, and shows how far a comparison is. Running,
statistics and table are `eval`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Controller
from engine.settings import DEFAULT_LIMITS
from engine.workload import PRESETS, PromptSet, WorkloadConfig, workload
from engine.workload.arrivals import counts_in_capacity
from engine.workload.unapplied import left_out
from eval.compare import ARRIVING, over
from train.command_line import leaves
from train.config import DEFAULT_DRAFTER, DEFAULT_MODEL, Serving

if TYPE_CHECKING:
    from rich.console import Console

    from engine.drawing import Draw
    from engine.server import Server
    from eval.runner import Store
    from eval.table import Report
    from train.interrupt import StopRequest

LoadServer: TypeAlias = "Callable[[Serving], Server]"
PROMPT_TOKENS = 96
"""Longest prompt of a preset, where none is given."""


class Stopped(Exception):
    """A stop was asked for between two runs of a comparison."""


def served_workload(serving: Serving) -> WorkloadConfig:
    """The workload that the options name. Raises UserError.

    A load replaces the workload's own; where regimes set it, theirs are multiplied.
    """
    lengths: dict[str, Any] = {"max_tokens": serving.max_tokens}
    if serving.backend == "replay":  # recorded prompts cannot be cut
        lengths |= {"prompt_tokens": serving.prompt_tokens}
    elif serving.prompt_tokens is not None or serving.workload in PRESETS:
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


def load_server(serving: Serving) -> Server:
    """The server that the options name; a live one takes seconds. Raises UserError."""
    from engine.overload import OverloadRule

    server = _replay_server(serving) if serving.backend == "replay" else _live_server(serving)
    server.settings = replace(
        server.settings, order=serving.order, overload=OverloadRule(serving.overload)
    )
    return server


@contextmanager
def closing(server: Server) -> Iterator[Server]:
    """The server, which on leaving gives back what it holds of the machine, as a live one does."""
    from engine.replay.server import ReplayServer

    try:
        yield server
    finally:
        if not isinstance(server, ReplayServer):
            server.close()


def _replay_server(serving: Serving) -> Server:
    from engine.replay.server import ReplayConfig, ReplayServer

    return ReplayServer.load(
        ReplayConfig(
            recording=serving.recording,
            profile=serving.profile,
            model=serving.model,
            drafter=serving.drafter,
            slots=serving.slots or DEFAULT_LIMITS.slots,
            page_size=serving.page_size,
            kv_pool_tokens=serving.kv_pool_tokens,
            power_cap_watts=serving.power_cap_watts,
        )
    )


def _live_server(serving: Serving) -> Server:
    from engine.serving import LiveConfig, LiveServer

    return LiveServer.load(
        LiveConfig(
            model=serving.model or DEFAULT_MODEL,
            draft_head=serving.draft_head,
            device=serving.device,
            attention=serving.attention,
            dtype=serving.dtype,
            threads=serving.threads,
            drafter=serving.drafter or DEFAULT_DRAFTER,
            draft_model=serving.draft_model,
            slots=serving.slots or DEFAULT_LIMITS.slots,
            page_size=serving.page_size,
            kv_pool_tokens=serving.kv_pool_tokens,
            profile=serving.profile,
        )
    )


def drawing(
    server: Server,
    serving: Serving,
    config: WorkloadConfig,
    held_out: bool = False,
    classes: ClassTable = DEFAULT_CLASSES,
) -> Draw:
    """Requests of `config` for `server` by generator; on replay `held_out` says of which texts."""
    from engine.replay.server import ReplayServer

    if isinstance(server, ReplayServer):
        from engine.replay.drawing import RecordedDrawing

        return RecordedDrawing(server, config, classes, held_out)
    from engine.drawing import Drawing

    return Drawing(server, config, PromptSet.load(serving.prompts), classes)


def compare(
    server: Server,
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
    drawn: Callable[[WorkloadConfig], Draw] | None = None,
    stored: Store | None = None,
) -> Report:
    """Serve `seeds` held-out arrivals with each controller, `seconds` of engine time each.

    `drawn` draws them, of the workload as it is served; None: the server's own way does. Requests
    arrive in the first part of a run; those unfinished at its end are misses, for all alike.
    `trace_out` is a folder for traces, metrics and logs of every run; what `stored` has is not
    served again. Raises Stopped when `stop` was requested between two runs.
    """
    from engine.replay.server import ReplayServer
    from eval import best_fixed, table
    from eval import compare as comparing
    from train.progress import ProgressLine

    config = over(served_workload(serving), ARRIVING * seconds)
    draw = drawing(server, serving, config, held_out=True) if drawn is None else drawn(config)
    found = best_fixed.settle(controllers, server, config, seconds, classes)
    total = seeds * len(controllers)
    seen_s: list[float] = []  # when each run began

    with ProgressLine(console, "compare", total) as line:

        def announce(name: str, done: int, of: int) -> None:
            if stop.requested:
                raise Stopped
            # Runs differ, but engine seconds say even less: a replay's pass in no time. The first
            # run compiles, so it promises nothing.
            seen_s.append(monotonic())
            timed = len(seen_s) - 2  # and what was there before took no time
            left_s = (of - done) * (seen_s[-1] - seen_s[1]) / timed if timed > 0 else None
            line.update(done, f"run {done + 1} of {of}", name, left_s=left_s)

        comparison = comparing.compare(
            server, draw, controllers, seeds, seconds, classes, announce, trace_out, stored
        )
        line.update(total, f"{total} runs")
    is_replay = isinstance(server, ReplayServer)
    title = _titled(serving, config, seconds, is_replay)
    note = left_out(config, "replay" if is_replay else "live")
    notes = [*([note] if note else []), *found]
    return table.build(comparison, classes, title, subject, rng, is_replay, notes)


def headline(server: Server, serving: Serving, config: WorkloadConfig) -> str:
    """Who serves what; where loads are multiples of a live server's capacity, whence that is."""
    from engine.replay.server import ReplayServer

    told = [server.describe()]
    if counts_in_capacity(config) and not isinstance(server, ReplayServer):
        told.append(f"capacity {server.capacity_source}")
    return " · ".join([*told, described(serving, config)])


def described(serving: Serving, config: WorkloadConfig) -> str:
    """The workload in a few words."""
    if config.load is not None:
        return f"{config.name} load at {config.load:g} × capacity"
    scaled = "" if serving.load is None else f" × {serving.load:g}"
    return f"{config.name} load{scaled}"


def _titled(serving: Serving, config: WorkloadConfig, seconds: float, is_replay: bool) -> str:
    modelled = ", replay, modelled time" if is_replay else ""
    title = f"{described(serving, config)}{modelled}, {seconds:g} s each"
    if config.shifts is not None:
        low, high = config.shifts.duration_s
        title += f", regimes of {low:.2g} to {high:.2g} s"
    return title


def title_of(serving: Serving, seconds: float) -> str:
    """What a comparison will be titled: with `departures`, what is the same test."""
    config = over(served_workload(serving), ARRIVING * seconds)
    return _titled(serving, config, seconds, serving.backend == "replay")


def departures(serving: Serving) -> dict[str, Any]:
    """Options of serving that depart from the usual ones, as plain data."""
    usual = leaves(Serving())
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in leaves(serving).items()
        if value != usual[name]
    }


def show(report: Report, console: Console) -> None:
    """The table, the verdict in words and what to read it with."""
    from eval import table

    console.print(table.as_rich(report))
    console.print(report.verdict, highlight=False, markup=False)
    for note in report.notes:
        console.print(f"({note})", style="dim", highlight=False, markup=False)


def report_line(folder: Path) -> str:
    """Write report.html of what lies in the folder, and say where: what stands there stands
    whether or not the page can be made.
    """
    from eval.report import write_report

    try:
        return f"report      {write_report(folder)}"
    except UserError as error:
        return f"report      not written: {error}"


def seconds_a_run(total_s: float, seeds: int, controllers: int) -> float:
    """How long each controller may serve each seed, in tenths of a second."""
    return max(math.floor(10.0 * total_s / (seeds * controllers)) / 10.0, 0.1)
