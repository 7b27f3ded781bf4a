"""How long a controller decides while every slot decodes: on replay, and beside live's iterations.

Times are this process's own. On replay everything else is modelled, so there they are of the
controller alone; on live they stand beside the iteration that they are a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any, TypeVar

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import UnmeasuredError
from engine.protocol import Controller, Outcome, Plan, View
from engine.replay.drawing import RecordedDrawing
from engine.replay.server import ReplayConfig, ReplayServer
from engine.workload import WorkloadConfig
from eval import contenders
from policies.delegate import Delegate, delegating

Taken = TypeVar("Taken")

SLOTS = 64
PROFILE = "llama-8b-a100"  # what ships with the recording is of a processor, too small for 64
MOST_EPISODES = 50
WARM = 20
LIVE_BATCH, LIVE_ITERATIONS, QUICK_LIVE_ITERATIONS = 16, 60, 6
LIVE_TOKENS = 96


def busy_server() -> tuple[ReplayServer, RecordedDrawing]:
    """Replay with so many slots, and arrivals that keep them full."""
    server = ReplayServer.load(ReplayConfig(slots=SLOTS, profile=PROFILE))
    work = WorkloadConfig(name="busy", duration_s=5.0, rate_rps=200.0)
    return server, RecordedDrawing(server, work, held_out=True)


def on_replay(
    server: ReplayServer,
    draw: RecordedDrawing,
    controller: Controller,
    read: Callable[[], Taken | None],
    wanted: int,
) -> list[Taken]:
    """What `read` tells after each iteration with all slots decoding, once warm; None is left out.

    Raises UnmeasuredError where there are fewer than `wanted`.
    """
    taken: list[Taken] = []
    # Prompts are read whole, so that a slot that is free is filled at once.
    settings = replace(server.settings, prefill_tokens=contenders.WHOLE_PROMPTS)
    for episode in range(MOST_EPISODES):
        engine = server.engine(draw(np.random.default_rng(episode)), settings=settings)
        controller.reset(engine.limits)
        busy = 0
        while (view := engine.next_decision()) is not None and len(taken) < wanted:
            outcome = engine.run_iteration(view, controller)
            if int(outcome.ran.sum()) == SLOTS:
                busy += 1
                if busy > WARM and (told := read()) is not None:
                    taken.append(told)
        if len(taken) >= wanted:
            return taken
    raise UnmeasuredError(f"{controller.name}: {len(taken)} decisions with {SLOTS} requests")


def on_live(
    bench: Bench, sets: str, controller: Controller, read: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Seconds that `read` tells after iterations of 16 requests, and how long those took.

    Where it tells 0 the iteration is left out; neither holds anything where all did.
    """
    from benchmarks.decoding import decode_s, iterations, requests_of, start

    names = sets.split()
    profile, server = bench.profile, bench.server
    each = -(-LIVE_BATCH // len(names))
    prompts = [p for name in names for p in bench.prompts(name, each)[:each]][:LIVE_BATCH]
    wanted = QUICK_LIVE_ITERATIONS if bench.quick else LIVE_ITERATIONS
    before, server.profile = server.profile, profile
    taken: list[float] = []
    lasting: list[float] = []
    try:
        requests = requests_of(prompts, LIVE_TOKENS)
        engine, driver = start(server, requests, controller, LIVE_BATCH)
        for outcome in iterations(engine, driver):
            if int(outcome.ran.sum()) == LIVE_BATCH and (seconds := read()) > 0:
                taken.append(seconds)
                lasting.append(decode_s(outcome))
                bench.say(f"{controller.name} on live: iteration {len(lasting)} of {wanted}")
            if len(lasting) >= wanted:
                break
    finally:
        server.profile = before
    return taken, lasting


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

    def told_us(self) -> tuple[float, float]:
        """Microseconds since the latest plan was asked for, and of these the processor's own."""
        return 1e6 * self.seconds, 1e6 * self.processor_s

    @contextmanager
    def _timing(self) -> Iterator[None]:
        begun, worked = perf_counter(), thread_time()
        yield
        self.processor_s += thread_time() - worked
        self.seconds += perf_counter() - begun


def timed(controller: Controller) -> Timed:
    """Extends and selects where the controller does."""
    return delegating(Timed, controller)(controller)
