"""Random short episodes with disturbances on the tiny recording, and what a controller does wrong.

`benchmarks/controllers.py` asks for 200 of each controller, the suite for a few. Right is: no plan
outside the limits, no exception, every request answered, the same episode from the same seed and,
of a lossless controller, the recorded text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from engine.protocol import Controller
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.request import Status
from engine.workload.disturbances import Disturbance, Disturbances
from policies import registry
from policies.best_fixed import awaiting
from tests.tiny_recording import TOKENS, recorded, replay_server

VALUES = {
    "acceptance": (0.0, 1.5),
    "draft_time": (0.5, 4.0),
    "power_cap": (0.3, 0.9),
    "memory": (0.5, 0.9),
}
POOLS: tuple[dict[str, int], ...] = (
    {},  # requests give way while memory is withdrawn
    {"capacity_tokens": 96, "page_size": 8, "kv_pool_tokens": 96},  # trees are cut to what is free
)


class Trial(NamedTuple):
    """One episode under one controller."""

    texts: list[list[int]]
    ended: list[tuple[int, Status, float]]
    """Requests in the order of their ends: who, how, and when."""
    preempted: int
    shrunk: int
    """Nodes that were planned and not verified for want of room."""
    course: list[tuple[list[int], ...]]
    """Tokens emitted, drafted and verified, by slot, of every iteration."""
    clipped: int


@cache
def server(pool: int) -> ReplayServer:
    """With one of POOLS."""
    return replay_server(**POOLS[pool])


def requests_of(rng: np.random.Generator) -> list[RecordedRequest]:
    """Three to six requests for any of the texts, one after another or all at once."""
    _, recording = recorded()
    gap_s, drawn = rng.choice([0.0, 0.0, 0.2]), []
    for i in range(int(rng.integers(3, 7))):
        text = int(rng.integers(recording.texts))
        start = recording.first_token[text]
        prompt = recording.tokens[start : start + recording.prompt_tokens[text]].tolist()
        tokens = int(rng.integers(1, TOKENS // 3))
        drawn.append(RecordedRequest(i, text % 3, prompt, tokens, float(i * gap_s), text=text))
    return drawn


def disturbances_of(rng: np.random.Generator) -> Disturbances:
    """Some of what can go wrong on replay, at some time of the episode."""
    wrong = []
    for kind, (low, high) in VALUES.items():
        if rng.random() < 0.5:
            start_s, lasts_s = rng.uniform(0.0, 0.15), rng.uniform(0.05, 0.6)
            ramp_s = lasts_s / 3 if rng.random() < 0.5 else 0.0
            wrong.append(
                Disturbance(kind, start_s, start_s + lasts_s, rng.uniform(low, high), ramp_s)
            )
    return Disturbances(wrong)


def serve(controller: Controller, seed: int) -> Trial:
    """The episode of that seed."""
    rng = np.random.default_rng(seed)
    requests, wrong = requests_of(rng), disturbances_of(rng)
    engine = server(int(rng.integers(len(POOLS)))).engine(requests, disturbances=wrong)
    controller.reset(engine.limits)
    course = []
    while (view := engine.next_decision()) is not None:
        outcome = engine.run_iteration(view, controller)
        counts = outcome.accepted_length, outcome.drafted, outcome.verified
        course.append(tuple(count.tolist() for count in counts))
    ended = [(record.id, record.status, record.finish_s) for record in engine.close_records()]
    texts, counters = [request.output for request in requests], engine.counters
    lost = counters["preempted"], counters["shrunk"]
    return Trial(texts, ended, *lost, course, counters["clipped"])


def made(spec: str) -> Controller:
    """A fresh controller, its tree settled where a sweep would have found one."""
    controller = registry.make(spec)
    for waiting in awaiting([controller]):
        waiting.settle(3, 2, 6)
    return controller


def faults(
    make: Callable[[], Controller], episodes: int, seed: int = 0, repeat_every: int = 1
) -> list[str]:
    """What went wrong in so many episodes from `seed` on, a sentence each; none is right.

    Every `repeat_every`-th episode is served again by a fresh controller and compared.
    """
    found = []
    for at in range(seed, seed + episodes):
        try:
            controller = make()
            trial = serve(controller, at)
            again = serve(make(), at) if (at - seed) % repeat_every == 0 else trial
        except Exception as error:  # whatever it raises, the next episode is served
            found.append(f"episode {at}: raised {type(error).__name__}: {error}")
            continue
        if trial.clipped:
            found.append(f"episode {at}: {trial.clipped} plan entries lay outside the limits")
        if again != trial:
            found.append(f"episode {at}: it went another way the second time")
        if any(status is not Status.FINISHED for _, status, _ in trial.ended):
            found.append(f"episode {at}: not every request was answered")
        if controller.lossless and trial.texts != recorded_texts(at):
            found.append(f"episode {at}: the text is not the recorded one")
    return found


def recorded_texts(seed: int) -> list[list[int]]:
    """What the requests of that episode have to be answered."""
    _, recording = recorded()
    texts = []
    for request in requests_of(np.random.default_rng(seed)):
        first = recording.first_token[request.text] + len(request.prompt)
        texts.append(recording.tokens[first : first + request.max_tokens].tolist())
    return texts
