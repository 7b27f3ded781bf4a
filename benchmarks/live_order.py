"""Controllers on live, on this machine: whether their order is the one of replay.

The pair that ships, paired blocks of the same arrivals, at a load at which objectives are missed.
Times are this machine's, so nothing but the order is compared with the published machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import need_controller
from engine.protocol import Controller
from engine.workload import WorkloadConfig, workload
from eval.compare import ARRIVING, compare, over
from eval.runner import Comparison, Run
from eval.statistics import paired_difference
from policies import registry

if TYPE_CHECKING:
    from engine.serving import LiveServer

BLOCKS, QUICK_BLOCKS = 8, 1
BLOCK_S, QUICK_BLOCK_S = 30.0, 8.0
LOAD = 0.8
OURS, THEIRS = "slack-priced", "adaserve"
JUDGED: dict[str, Callable[[Run], float]] = {
    "violations": lambda run: run.metrics.violations,
    "goodput": lambda run: run.metrics.goodput_tps,
}


def order(bench: Bench, _: str) -> Result:
    """Violations of slack-priced less AdaServe's, a block: below 0 is the order of replay."""
    need_controller(OURS)
    controllers = {name: registry.make(name) for name in (OURS, THEIRS)}
    found = on_live(bench, controllers, workload("steady", load=LOAD, truncate=True))
    blocks, block_s = extent(bench)
    missed, good = (
        {name: found.values(name, figure) for name in controllers} for figure in JUDGED.values()
    )
    if not any(values.sum() for values in missed.values()):
        raise UnmeasuredError("nobody missed an objective; the order cannot be told")
    shown = paired_difference(missed[OURS], missed[THEIRS], bench.rng())
    gain = paired_difference(good[OURS], good[THEIRS], bench.rng())
    return Result(
        shown.mean,
        f"{shown.mean:+.1f} [{shown.low:.1f}, {shown.high:.1f}] violations a block",
        note=f"{blocks} blocks of {block_s:g} s at {LOAD:g} × capacity; goodput {gain.mean:+.1f} "
        f"[{gain.low:.1f}, {gain.high:.1f}] tokens/s",
        raw={name: missed[name].tolist() for name in missed},
        broken="" if shown.high < 0 else "no difference shown",
    )


def extent(bench: Bench) -> tuple[int, float]:
    """Blocks, and the seconds of each."""
    return (QUICK_BLOCKS, QUICK_BLOCK_S) if bench.quick else (BLOCKS, BLOCK_S)


def on_live(
    bench: Bench, controllers: Mapping[str, Controller], config: WorkloadConfig
) -> Comparison:
    """The blocks served by each, with this machine's profile; raises UserError."""
    from engine.drawing import Drawing
    from engine.workload import PromptSet

    blocks, block_s = extent(bench)
    with priced(bench) as server:
        draw = Drawing(server, over(config, ARRIVING * block_s), PromptSet.load())
        return compare(
            server,
            draw,
            controllers,
            blocks,
            block_s,
            announce=lambda name, done, total: bench.say(f"live: {name}, {done + 1} of {total}"),
        )


@contextmanager
def priced(bench: Bench) -> Iterator[LiveServer]:
    """The server, with this machine's profile meanwhile."""
    profile, server = bench.profile, bench.server
    before, server.profile = server.profile, profile
    try:
        yield server
    finally:
        server.profile = before
