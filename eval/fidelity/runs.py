"""The same requests on both backends: live with its text forced to the recording, and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.observability.observing import serve_observed
from engine.protocol import Controller, Outcome, View
from engine.request import RequestRecord
from eval.fidelity.figures import Measured, measured

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.replay.recording import Recording
    from engine.replay.server import ReplayServer
    from engine.request import Request
    from engine.serving import LiveServer

STAGES = ("prefill", "draft", "select", "verify", "controller", "other")
MakeRequests = Callable[[], "list[Request]"]


class Case(NamedTuple):
    """What is served: requests, the same at every call, and whether all of them come at once."""

    name: str
    requests: MakeRequests
    is_drain: bool


class Sums:
    """An observer that adds up what the figures need."""

    def __init__(self, depth: int) -> None:
        self.busy_s, self.iterations = 0.0, 0
        self.stages_s = dict.fromkeys(STAGES, 0.0)
        self.proposed, self.accepted = np.zeros(depth, np.int64), np.zeros(depth, np.int64)

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Add an iteration."""
        self.busy_s += outcome.iteration_s
        self.iterations += 1
        for name in STAGES:
            self.stages_s[name] += getattr(outcome, f"{name}_s")
        self.proposed += outcome.proposed.sum(0)
        self.accepted += outcome.accepted.sum(0)

    def on_record(self, record: RequestRecord) -> None:
        """The records are summed up at the end."""

    def close(self) -> None:
        """Nothing is written."""


def served(engine: Engine, controller: Controller) -> Measured:
    """Drain the engine."""
    sums = Sums(engine.limits.max_depth)
    records = serve_observed(engine, controller, [sums])
    mean_s = {name: total / max(sums.iterations, 1) for name, total in sums.stages_s.items()}
    return measured(records, sums.busy_s, sums.proposed, sums.accepted, mean_s)


def served_live(
    live: LiveServer, replay: ReplayServer, controller: Controller, case: Case
) -> Measured:
    """A case served live, saying what was recorded."""
    requests = case.requests()
    with forced(live, replay) as give:
        give(requests)
        return served(live.engine(requests), controller)


def served_on_replay(replay: ReplayServer, controller: Controller, case: Case) -> Measured:
    """The same requests on replay."""
    return served(replay.engine(case.requests()), controller)


@contextmanager
def forced(live: LiveServer, replay: ReplayServer) -> Iterator[Callable[[list[Request]], None]]:
    """Within, the live server says what was recorded of the requests that it was last given."""
    from engine.backends.forced import Forced
    from engine.known_texts import KnownTexts
    from engine.replay.recorded_request import RecordedRequest

    backend, recording = live.backend, replay.recording
    wrapper = Forced(backend)

    def give(requests: list[Request]) -> None:
        recorded = [r for r in requests if isinstance(r, RecordedRequest)]
        wrapper.texts = KnownTexts.of(recorded, [answer(recording, r.text) for r in recorded])

    try:
        live.backend = wrapper  # type: ignore[assignment]  # all that an episode asks of it
        yield give
    finally:
        live.backend = backend


def answer(recording: Recording, text: int) -> list[int]:
    """The output tokens of a recorded text."""
    start, end = recording.first_token[text : text + 2].tolist()
    return recording.tokens[start + int(recording.prompt_tokens[text]) : end].tolist()
