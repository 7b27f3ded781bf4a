"""The paired runner: every controller serves the same seeded arrivals, one after the other.

The order of the controllers rotates from seed to seed, so that a machine that warms up or slows
down hits all alike. What a run was worth is `eval.metrics`; what may be concluded, `eval.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.observability.observing import Observer, serve_observed
from engine.observability.outputs import Observers
from engine.protocol import Controller, Floats, Outcome, View
from engine.request import Request, RequestRecord, Status
from eval.metrics import EpisodeMetrics, summarise

if TYPE_CHECKING:
    from engine.loop import Engine

MakeEngine = Callable[[list[Request]], "Engine"]
Watch = Callable[[str, int], "Observers"]
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
    watch: Watch | None = None,
) -> Comparison:
    """Serve each episode once with each controller.

    `make_engine` builds a fresh engine whose horizon ends an episode: what remains is a miss for
    all alike. `max_iterations` is a guard against a controller that makes no progress.
    `announce` is told (controller, runs done, runs in all) before each run. `watch` makes the
    observers of a run (controller, seed); they look on between iterations and cost no engine time.
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
            with Observers([]) if watch is None else watch(name, episode.seed) as observers:
                done[name].append(
                    serve(name, controllers[name], episode.seed, engine, max_iterations, observers)
                )
    return Comparison(tuple(e.seed for e in episodes), {n: tuple(r) for n, r in done.items()})


class Tally:
    """An observer that adds up what a run's line in the table needs."""

    def __init__(self) -> None:
        self.iterations = self.emitted = self.took_part = 0
        self.controller_s = self.joules = 0.0
        self.power_is_measured = False

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Add an iteration."""
        self.iterations += 1
        self.emitted += int(outcome.accepted_length[outcome.ran].sum())
        self.took_part += int(outcome.ran.sum())
        self.controller_s += outcome.controller_s
        self.joules += outcome.energy_joules
        self.power_is_measured = view.power_is_measured

    def on_record(self, record: RequestRecord) -> None:
        """Records are summed up by `eval.metrics`."""

    def close(self) -> None:
        """Nothing is written."""


def serve(
    name: str,
    controller: Controller,
    seed: int,
    engine: Engine,
    max_iterations: int | None = None,
    observers: Iterable[Observer] = (),
) -> Run:
    """Drain one engine with one controller and sum up."""
    tally = Tally()
    records = serve_observed(engine, controller, (tally, *observers), max_iterations)
    metrics = summarise(records, engine.classes)
    left = any(record.status is Status.UNFINISHED for record in records)
    nothing = float("nan")
    return Run(
        controller=name,
        seed=seed,
        metrics=metrics,
        iterations=tally.iterations,
        tokens_per_iteration=tally.emitted / tally.took_part if tally.took_part else nothing,
        decision_s=tally.controller_s / tally.iterations if tally.iterations else 0.0,
        joules_per_token=tally.joules / metrics.output_tokens if metrics.output_tokens else nothing,
        power_is_measured=tally.power_is_measured,
        clock_s=engine.clock_s,
        capped=left and max_iterations is not None and tally.iterations >= max_iterations,
    )
