"""What deciding costs: AdaServe's selection, and every controller's whole decision at 64 requests.

Times are this process's own, on one core. Selection is timed on drawn candidates, the decision as
the engine asks for it on replay (plan, extend, select, observe), where everything else is modelled.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.deciding import LIVE_BATCH, SLOTS, busy_server, on_live, on_replay, timed
from benchmarks.figures import Result, UnmeasuredError
from engine.errors import UserError
from engine.kernels.slo_select import slo_select
from policies import registry

REQUESTS, CANDIDATES = 32, 64
BUDGET = 256  # nodes of 2,048
ROUNDS, REPEATS = 9, 200
DECISIONS, QUICK_DECISIONS = 2000, 200
SPELLED = {
    "best-fixed": "best-fixed(depth=4, width=2, nodes=8)",
    "slack-priced": "slack-priced(chunks=False)",
    "vllm-priority": f"vllm-priority(batch={SLOTS})",
}
"""With what a sweep would have settled, and without what keeps slots from all decoding at once: a
smaller batch, or prompts in pieces so small that places are filled slowly."""


def selection(bench: Bench, _: str) -> Result:
    """Microseconds of AdaServe's selection for 32 requests of 64 candidates: the best round."""
    bench.say("selecting")
    arguments = drawn_candidates(bench.rng())
    slo_select(*arguments)  # compiles
    rounds = []
    for _round in range(ROUNDS):
        begun = perf_counter()
        for _repeat in range(REPEATS):
            slo_select(*arguments)
        rounds.append(1e6 * (perf_counter() - begun) / REPEATS)
    return Result(
        min(rounds),
        f"{min(rounds):.0f} µs",
        note=f"{BUDGET} of {REQUESTS * CANDIDATES:,} nodes; median of {ROUNDS} rounds "
        f"{np.median(rounds):.0f} µs",
        raw={"rounds_us": rounds},
    )


def drawn_candidates(rng: np.random.Generator) -> tuple[Any, ...]:
    """Arguments of the kernel: eight layers of eight, less likely the deeper."""
    shape = REQUESTS, CANDIDATES
    depth = np.broadcast_to(np.repeat(np.arange(1, 9), 8), shape).astype(np.int64)
    probability = rng.random(shape) ** 0.5 * 0.8**depth
    goal = rng.uniform(1.0, 4.0, REQUESTS)
    many = np.full(REQUESTS, CANDIDATES, np.int64)
    order = np.argsort(-goal, kind="stable")
    return order, goal, CANDIDATES, many, many, BUDGET, 8, many, depth, probability


def selection_share(bench: Bench, sets: str) -> Result:
    """Percent of an iteration on live that AdaServe's `select` takes, 16 requests."""
    watched = timed(registry.make("adaserve"))
    selecting, lasting = on_live(bench, sets, watched, lambda: watched.selecting_s)
    if not lasting:
        raise UnmeasuredError(
            f"no iteration selected for {LIVE_BATCH} requests: this machine verifies no more than "
            "their roots within AdaServe's budget"
        )
    share = 100 * sum(selecting) / sum(lasting)
    return Result(
        share,
        f"{share:.2f} %",
        note=f"{1e6 * np.median(selecting):.0f} µs of {1e3 * np.median(lasting):.0f} ms",
        raw={"selecting_s": selecting, "iteration_s": lasting},
    )


def decision(bench: Bench, _: str) -> Result:
    """99th percentile of the slowest registered controller's decision, in microseconds."""
    server, draw = busy_server()
    wanted = QUICK_DECISIONS if bench.quick else DECISIONS
    p99: dict[str, float] = {}
    working: dict[str, float] = {}
    failed: list[str] = []
    for name in registry.names():
        bench.say(f"deciding for {SLOTS} requests: {name}")
        try:
            watched = timed(registry.make(SPELLED.get(name, name)))
            taken = on_replay(server, draw, watched, watched.told_us, wanted)
        except (UserError, AttributeError, TypeError, ValueError) as error:
            failed.append(f"{name}: {error}")  # told, and the figure does not hold
            continue
        p99[name], working[name] = np.quantile(taken, 0.99, axis=0).tolist()
    if not p99:
        raise UnmeasuredError(f"no controller decided; {'; '.join(failed)}")
    order = sorted(p99, key=lambda name: -p99[name])
    return Result(
        p99[order[0]],
        f"{p99[order[0]]:.0f} µs, {order[0]}",
        note="; ".join(f"{name} {p99[name]:.0f}" for name in order[1:])
        + f". Of processor time alone the slowest takes {max(working.values()):.0f} µs, "
        f"{max(working, key=lambda name: working[name])}",
        raw={"p99_us": p99, "p99_processor_us": working},
        broken=f"not measured: {'; '.join(failed)}" if failed else "",
    )
