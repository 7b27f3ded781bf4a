"""The paired runner: every controller serves the same seeded arrivals, one after the other.

The order of the controllers rotates from seed to seed, so that a machine that warms up or slows
down hits all alike. What a run was worth is `eval.metrics`; what may be concluded, `eval.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.protocol import Controller, Floats, Outcome
from engine.request import Request
from eval.metrics import EpisodeMetrics, summarise

if TYPE_CHECKING:
    from engine.loop import Engine

MakeEngine = Callable[[list[Request]], "Engine"]
Announce = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Episode:
    """Arrivals by seed. `requests` gives fresh Request objects, equal ones at every call."""

    seed: int
    requests: Callable[[], list[Request]]


@dataclass(frozen=True)
class Run:
    """One controller on one episode. Times are on the engine's clock."""

    controller: str
    seed: int
    metrics: EpisodeMetrics
    iterations: int
    tokens_per_iteration: float
    """Tokens that a decoding request got from an iteration it took part in, on average."""
    decision_s: float
    """Mean time that the controller took in an iteration (a median would hide a held decision)."""
    joules_per_token: float
    power_is_measured: bool
    clock_s: float
    capped: bool
    """True when `max_iterations` ended it, not the arrivals or the horizon."""


@dataclass(frozen=True)
class Comparison:
    """All runs, by controller, in the order of `seeds`."""

    seeds: tuple[int, ...]
    runs: dict[str, tuple[Run, ...]]

    def values(self, controller: str, figure: Callable[[Run], float]) -> Floats:
        """[seeds] of one figure, paired over controllers by position."""
        return np.array([figure(run) for run in self.runs[controller]], dtype=np.float64)


def run(
    controllers: Mapping[str, Controller],
    episodes: Sequence[Episode],
    make_engine: MakeEngine,
    max_iterations: int | None = None,
    announce: Announce | None = None,
) -> Comparison:
    """Serve each episode once with each controller.

    `make_engine` builds a fresh engine whose horizon ends an episode: what remains is a miss for
    all alike. `max_iterations` is a guard against a controller that makes no progress.
    `announce` is told (controller, runs done, runs in all) before each run.
    """
    names = list(controllers)
    done: dict[str, list[Run]] = {name: [] for name in names}
    total = len(names) * len(episodes)
    for index, episode in enumerate(episodes):
        turn = index % max(len(names), 1)
        for name in names[turn:] + names[:turn]:
            if announce is not None:
                announce(name, sum(map(len, done.values())), total)
            engine = make_engine(episode.requests())
            done[name].append(serve(name, controllers[name], episode.seed, engine, max_iterations))
    return Comparison(tuple(e.seed for e in episodes), {n: tuple(r) for n, r in done.items()})


def serve(
    name: str,
    controller: Controller,
    seed: int,
    engine: Engine,
    max_iterations: int | None = None,
) -> Run:
    """Drain one engine with one controller and sum up."""
    controller.reset(engine.limits)
    outcomes: list[Outcome] = []
    power_is_measured = False
    capped = False
    while (view := engine.next_decision()) is not None:
        if max_iterations is not None and len(outcomes) >= max_iterations:
            capped = True
            break
        power_is_measured = view.power_is_measured
        outcomes.append(engine.run_iteration(view, controller))
    metrics = summarise(engine.close_records(), engine.classes)
    emitted = sum(int(o.accepted_length[o.ran].sum()) for o in outcomes)
    took_part = sum(int(o.ran.sum()) for o in outcomes)
    energy = sum(o.energy_joules for o in outcomes)
    return Run(
        controller=name,
        seed=seed,
        metrics=metrics,
        iterations=len(outcomes),
        tokens_per_iteration=emitted / took_part if took_part else float("nan"),
        decision_s=float(np.mean([o.controller_s for o in outcomes])) if outcomes else 0.0,
        joules_per_token=energy / metrics.output_tokens if metrics.output_tokens else float("nan"),
        power_is_measured=power_is_measured,
        clock_s=engine.clock_s,
        capped=capped,
    )
