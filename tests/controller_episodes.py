"""Whole episodes of a controller on the tiny networks and their recording, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from engine.loop import Engine
from engine.protocol import Controller, Outcome
from tests.tiny_recording import LIMITS, asked, live_server, replay_server

Course = list[tuple[list[int], ...]]
BACKENDS: dict[str, Callable[[], Callable[..., Engine]]] = {
    "live": lambda: live_server().engine,
    "replay": lambda: replay_server().engine,
}


class Episode(NamedTuple):
    """What was answered, and how."""

    texts: list[list[int]]
    course: Course
    """Tokens emitted, drafted and verified, by slot, of every iteration."""
    outcomes: list[Outcome]
    counters: dict[str, int]


def serve(backend: str, controller: Controller) -> Episode:
    """Five requests over four slots on `backend`: "replay", or shorter ones on "live"."""
    requests = asked(5, tokens=24 if backend == "replay" else 14)
    engine = BACKENDS[backend]()(list(requests))
    controller.reset(LIMITS)
    outcomes, course = [], []
    while (view := engine.next_decision()) is not None:
        outcome = engine.run_iteration(view, controller)
        outcomes.append(outcome)
        counts = outcome.accepted_length, outcome.drafted, outcome.verified
        course.append(tuple(count.tolist() for count in counts))
    return Episode([r.output for r in requests], course, outcomes, engine.counters)


def depths(episode: Episode) -> set[int]:
    """Of all trees that were offered to the target."""
    found = [np.unique(outcome.proposed[outcome.ran].sum(1)) for outcome in episode.outcomes]
    return set(np.concatenate(found).tolist())
