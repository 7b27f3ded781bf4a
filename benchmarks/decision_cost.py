"""What deciding costs: AdaServe's selection, and every controller's whole decision at 64 requests.

Times are this process's own, on one core. Selection is timed on drawn candidates, the decision as
the engine asks for it on replay (plan, extend, select, observe), where everything else is modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from engine.errors import UserError
from engine.kernels.slo_select import slo_select
from engine.protocol import Controller, Outcome, Plan, View
from engine.replay.drawing import RecordedDrawing
from engine.replay.server import ReplayConfig, ReplayServer
from engine.workload import WorkloadConfig
from eval import contenders
from policies import registry
from policies.delegate import Delegate, delegating

REQUESTS, CANDIDATES = 32, 64
BUDGET = 256  # nodes of 2,048
ROUNDS, REPEATS = 9, 200
SLOTS = 64
PROFILE = "llama-8b-a100"  # what ships with the recording is of a processor, too small for 64
DECISIONS, QUICK_DECISIONS = 2000, 200
MOST_EPISODES = 50
WARM = 20
LIVE_BATCH, LIVE_ITERATIONS, QUICK_LIVE_ITERATIONS = 16, 60, 6
LIVE_TOKENS = 96
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
    from benchmarks.decoding import iterations, requests_of, start

    names = sets.split()
    profile, server = bench.profile, bench.server
    each = -(-LIVE_BATCH // len(names))
    prompts = [p for name in names for p in bench.prompts(name, each)[:each]][:LIVE_BATCH]
    wanted = QUICK_LIVE_ITERATIONS if bench.quick else LIVE_ITERATIONS
    watched = timed(registry.make("adaserve"))
    before, server.profile = server.profile, profile
    try:
        requests = requests_of(prompts, LIVE_TOKENS)
        engine, driver = start(server, requests, watched, LIVE_BATCH)
        selecting, lasting = [], []
        for outcome in iterations(engine, driver):
            if int(outcome.ran.sum()) == LIVE_BATCH and watched.selecting_s > 0:
                selecting.append(watched.selecting_s)
                lasting.append(outcome.iteration_s - outcome.prefill_s)
                bench.say(f"adaserve on live: iteration {len(lasting)} of {wanted}")
            if len(lasting) >= wanted:
                break
    finally:
        server.profile = before
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
    server = ReplayServer.load(ReplayConfig(slots=SLOTS, profile=PROFILE))
    work = WorkloadConfig(name="busy", duration_s=5.0, rate_rps=200.0)
    draw = RecordedDrawing(server, work, held_out=True)
    wanted = QUICK_DECISIONS if bench.quick else DECISIONS
    p99: dict[str, float] = {}
    working: dict[str, float] = {}
    failed: list[str] = []
    for name in registry.names():
        bench.say(f"deciding for {SLOTS} requests: {name}")
        try:
            taken = decisions_us(server, draw, name, wanted)
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


def decisions_us(
    server: ReplayServer, draw: RecordedDrawing, spec: str, wanted: int
) -> list[tuple[float, float]]:
    """Microseconds of decisions while all slots decode, and of these the processor's own."""
    watched = timed(registry.make(SPELLED.get(spec, spec)))
    taken: list[tuple[float, float]] = []
    # Prompts are read whole, so that a slot that is free is filled at once.
    settings = replace(server.settings, prefill_tokens=contenders.WHOLE_PROMPTS)
    for episode in range(MOST_EPISODES):
        requests = draw(np.random.default_rng(episode))
        engine = server.engine(requests, settings=settings)
        watched.reset(engine.limits)
        busy = 0
        while (view := engine.next_decision()) is not None and len(taken) < wanted:
            outcome = engine.run_iteration(view, watched)
            if int(outcome.ran.sum()) == SLOTS:
                busy += 1
                if busy > WARM:
                    taken.append((1e6 * watched.seconds, 1e6 * watched.processor_s))
        if len(taken) >= wanted:
            break
    if len(taken) < wanted:
        raise UnmeasuredError(f"{spec}: {len(taken)} decisions with {SLOTS} requests")
    return taken


class Timed(Delegate):
    """A controller, and the time that it takes."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.seconds = self.processor_s = self.selecting_s = 0.0
        """Since the latest plan was asked for: of all calls, of these the processor's time alone,
        and of selections."""

    def plan(self, view: View) -> Plan:
        """As the controller plans."""
        self.seconds = self.processor_s = self.selecting_s = 0.0
        with self._timing():
            return self.controller.plan(view)

    def pass_on(self, method: str, *arguments: Any) -> Any:
        """As the controller extends or selects."""
        before = self.seconds
        with self._timing():
            answer = super().pass_on(method, *arguments)
        self.selecting_s += self.seconds - before if method == "select" else 0.0
        return answer

    def observe(self, outcome: Outcome) -> None:
        """As the controller observes."""
        with self._timing():
            self.controller.observe(outcome)

    @contextmanager
    def _timing(self) -> Iterator[None]:
        begun, worked = perf_counter(), thread_time()
        yield
        self.processor_s += thread_time() - worked
        self.seconds += perf_counter() - begun


def timed(controller: Controller) -> Timed:
    """Extends and selects where the controller does."""
    return delegating(Timed, controller)(controller)
