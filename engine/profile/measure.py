"""Time the live networks: whole iterations of the real engine, over and over in changing order.

What is timed is what the engine's clock charges, layout and masks included, so that the profile
predicts steps and not kernels. Episodes take turns, so that whatever else the machine does in some
seconds hits all sizes alike; prompts and orders are drawn once, so that every turn repeats the same
points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from engine.prefilling import Chunk
from engine.profile.schedule import Episode, Shape
from engine.protocol import Controller, Outcome, Plan, View, uniform_plan
from engine.request import Request
from engine.serving import LiveServer

FEWEST_ROUNDS = 3  # a median of three does not follow the one that was disturbed
LOOKUP_ALPHABET = 6  # few enough tokens that n-grams come back, so that there is what to look up


class Step(NamedTuple):
    """One timed iteration. `episode` and `place` say which point it repeats."""

    episode: int
    place: int
    shape: Shape
    requests: int
    tokens: int  # verified, roots included
    kv_tokens: int  # contexts of all requests
    first_rows: int  # committed rows that the first draft step ran, 0 when nothing was drafted
    beam_rows: int  # rows of each further draft step
    draft_s: float
    verify_s: float
    host_s: float
    watts: float
    watts_are_measured: bool


class Timed(NamedTuple):
    """What was measured: iterations, and the reading of prompts before them."""

    steps: list[Step]
    chunks: list[Chunk]


class OneShape(Controller):
    """Gives every request the tree that it was told last."""

    name = "profile"
    shape = Shape(0, 1, 0)

    def plan(self, view: View) -> Plan:
        """The same for all."""
        return uniform_plan(view.limits, *self.shape)


def measure(
    server: LiveServer,
    episodes: Sequence[Episode],
    rounds: int,
    budget_s: float,
    progress: Callable[[float], None] = lambda done: None,
) -> Timed:
    """Run every episode `rounds` times in turns; stop early once `budget_s` seconds are spent.

    At least three rounds are run, whatever they take. `progress` is told the share that is done.
    """
    begun = perf_counter()
    timed = Timed([], [])
    indices = np.arange(len(episodes))
    for turn in range(rounds):
        for done, index in enumerate(np.roll(indices, turn).tolist()):
            spent_s = perf_counter() - begun
            if turn >= FEWEST_ROUNDS and spent_s > budget_s:
                progress(1.0)
                return timed
            steps, chunks = run_episode(server, index, episodes[index])
            timed.steps.extend(steps)
            timed.chunks.extend(chunks)
            through = turn + (done + 1) / len(episodes)  # rounds
            in_time = min(spent_s / max(budget_s, 1e-9), through / FEWEST_ROUNDS, 1.0)
            progress(max(through / rounds, in_time))
    return timed


def run_episode(server: LiveServer, index: int, episode: Episode) -> Timed:
    """Serve the episode's requests together, one tree after another."""
    generator = np.random.default_rng(index)
    high = server.decoder.config.vocab_size
    if server.drafter.name == "prompt-lookup":
        high = min(high, LOOKUP_ALPHABET)
    requests = [
        Request(
            i, 0, generator.integers(0, high, episode.prompt_tokens).tolist(),
            episode.output_tokens, 0.0,
        )
        for i in range(episode.requests)
    ]  # fmt: skip
    whole = episode.requests * episode.prompt_tokens
    settings = replace(server.settings, prefill_tokens=episode.chunk_tokens or whole)
    engine = server.engine(requests, settings=settings, waiting=True)
    controller = OneShape()
    controller.reset(engine.limits)
    timed = Timed([], [])
    for place, shape in enumerate(episode.shapes):
        view = engine.next_decision()
        if view is None:
            break
        timed.chunks.extend(engine.chunks)
        controller.shape = shape
        behind = int((view.context_tokens - engine.drafted_to)[view.active].sum())
        outcome = engine.run_iteration(view, controller)
        if int(outcome.ran.sum()) == episode.requests:
            power = engine.energy.watts, engine.energy.is_measured
            timed.steps.append(_step(index, place, episode, view, outcome, behind, power))
    return timed


def _step(
    index: int,
    place: int,
    episode: Episode,
    view: View,
    outcome: Outcome,
    behind: int,
    power: tuple[float, bool],
) -> Step:
    shape = episode.shapes[place]
    return Step(
        episode=index,
        place=place,
        shape=shape,
        requests=episode.requests,
        tokens=int(outcome.verified.sum()),
        kv_tokens=int(view.context_tokens[view.active].sum()),
        first_rows=behind if shape.depth else 0,
        beam_rows=shape.width * episode.requests,
        draft_s=outcome.draft_s,
        verify_s=outcome.verify_s,
        host_s=outcome.select_s + outcome.other_s,
        watts=power[0],
        watts_are_measured=power[1],
    )
