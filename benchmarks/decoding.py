"""Serve given prompts under one controller and count tokens and decode time.

Decode time is the engine's iteration without prefill: drafting, selection, verification,
controller and the engine's own work. The first token of an answer comes from prefill and is not
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.loop import Engine, EngineSettings
from engine.protocol import Controller, Outcome, Plan, View
from engine.request import Request
from engine.serving import LiveServer
from policies.delegate import Delegate, delegating


class Served(NamedTuple):
    """What serving brought; `full_` counts only iterations in which all running slots decoded."""

    tokens: int
    seconds: float
    full_tokens: int
    full_seconds: float
    iterations: int
    full_iterations: int
    outputs: list[list[int]]
    draft_failures: int
    """Draft calls that raised: serving went on without their drafts."""

    @property
    def tokens_per_s(self) -> float:
        """Over all iterations."""
        return self.tokens / self.seconds if self.seconds else float("nan")

    @property
    def full_tokens_per_s(self) -> float:
        """Over iterations with all slots busy."""
        return self.full_tokens / self.full_seconds if self.full_seconds else float("nan")


class AtMost(Delegate):
    """A controller with so many requests running at most, prompts processed without delay.

    Made by `at_most`, so that it extends and selects where the controller does.
    """

    def __init__(self, controller: Controller, running: int, prefill_tokens: int) -> None:
        super().__init__(controller)
        self.running, self.prefill_tokens = running, prefill_tokens

    def plan(self, view: View) -> Plan:
        """The controller's plan, held to the number of requests."""
        plan = self.controller.plan(view)
        return plan._replace(max_running=self.running, prefill_tokens=self.prefill_tokens)


def at_most(controller: Controller, running: int, prefill_tokens: int) -> AtMost:
    """The controller with `running` requests at most and so many prompt tokens an iteration."""
    return delegating(AtMost, controller)(controller, running, prefill_tokens)


def requests_of(
    prompts: Sequence[list[int]], tokens: int, stop_ids: frozenset[int] = frozenset()
) -> list[Request]:
    """Requests that all arrive at once; `tokens` counts those after the first."""
    return [
        Request(index, 0, prompt, tokens + 1, 0.0, stop_ids) for index, prompt in enumerate(prompts)
    ]


def start(
    server: LiveServer, requests: Sequence[Request], controller: Controller, running: int
) -> tuple[Engine, Controller]:
    """An engine and the controller to drive it with, so that `running` requests decode together."""
    prefill_tokens = running * server.settings.capacity_tokens
    settings = EngineSettings(
        server.settings.limits, server.settings.capacity_tokens, prefill_tokens=prefill_tokens
    )
    engine = server.engine(requests, settings=settings)
    engine.max_running = running  # holds until the first plan says the same
    driver = at_most(controller, running, prefill_tokens)
    driver.reset(engine.limits)
    return engine, driver


def iterations(engine: Engine, controller: Controller) -> Iterator[Outcome]:
    """Serve to the end, one outcome after the other."""
    while (view := engine.next_decision()) is not None:
        yield engine.run_iteration(view, controller)


def decode_s(outcome: Outcome) -> float:
    """Length of an iteration without its prefill."""
    return outcome.iteration_s - outcome.prefill_s


def serve(
    server: LiveServer, requests: Sequence[Request], controller: Controller, running: int = 1
) -> Served:
    """Serve all requests, `running` at a time."""
    engine, driver = start(server, requests, controller, running)
    tokens = full_tokens = count = full_count = 0
    seconds = full_seconds = 0.0
    for outcome in iterations(engine, driver):
        emitted, spent = int(outcome.accepted_length.sum()), decode_s(outcome)
        tokens, seconds, count = tokens + emitted, seconds + spent, count + 1
        if int(outcome.ran.sum()) == running:
            full_tokens, full_seconds = full_tokens + emitted, full_seconds + spent
            full_count += 1
    engine.close_records()  # writes the requests' outputs
    outputs = [list(request.output) for request in requests]
    failures = engine.counters["draft_failures"]
    return Served(tokens, seconds, full_tokens, full_seconds, count, full_count, outputs, failures)
