"""Slack-priced and AdaServe on live, on this machine: whether the order is the one of replay.

The pair that ships, paired blocks of the same arrivals, at a load at which objectives are missed.
Times are this machine's, so nothing but the order is compared with the published machine's.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import need_controller
from eval.statistics import paired_difference
from policies import registry

BLOCKS, QUICK_BLOCKS = 8, 1
BLOCK_S, QUICK_BLOCK_S = 30.0, 8.0
LOAD = 0.8
OURS, THEIRS = "slack-priced", "adaserve"


def order(bench: Bench, _: str) -> Result:
    """Violations of slack-priced less AdaServe's, a block: below 0 is the order of replay."""
    from engine.drawing import Drawing
    from engine.workload import PromptSet, workload
    from eval.compare import ARRIVING, compare, over

    need_controller(OURS)
    blocks, block_s = (QUICK_BLOCKS, QUICK_BLOCK_S) if bench.quick else (BLOCKS, BLOCK_S)
    profile, server = bench.profile, bench.server
    before, server.profile = server.profile, profile
    try:
        config = over(workload("steady", load=LOAD, truncate=True), ARRIVING * block_s)
        draw = Drawing(server, config, PromptSet.load())
        controllers = {name: registry.make(name) for name in (OURS, THEIRS)}
        found = compare(
            server,
            draw,
            controllers,
            blocks,
            block_s,
            announce=lambda name, done, total: bench.say(f"live: {name}, {done + 1} of {total}"),
        )
    finally:
        server.profile = before
    missed = {name: found.values(name, lambda run: run.metrics.violations) for name in controllers}
    good = {name: found.values(name, lambda run: run.metrics.goodput_tps) for name in controllers}
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
