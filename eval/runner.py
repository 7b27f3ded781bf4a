"""The paired runner: every controller serves the same seeded arrivals, one after the other.

The order of the controllers rotates from seed to seed, so that a machine that warms up or slows
down hits all alike. A system is a controller whose engines are set its own way. What a run was
worth is `eval.metrics`, what it cost `eval.cost`; what may be concluded, `eval.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.observability.observing import Observer, serve_observed
from engine.observability.outputs import Observers
from engine.protocol import Controller, Floats, Outcome, View
from engine.request import Request, RequestRecord, Status
from eval.cost import Cost
from eval.emissions import Emissions
from eval.metrics import EpisodeMetrics, summarise

if TYPE_CHECKING:
    from engine.loop import Engine

MakeEngine = Callable[[list[Request]], "Engine"]
Watch = Callable[[str, int], "Observers"]
Announce = Callable[[str, int, int], None]
Settings = dict[str, str | int]
NOTHING = float("nan")


@dataclass(frozen=True)
class SeededRequests:
    """An episode by seed. `requests` gives fresh Request objects, equal ones at every call."""

    seed: int
    requests: Callable[[], list[Request]]


@dataclass(frozen=True)
class Run:
    """One controller on one episode. Times are on the engine's clock, definitions in `eval.cost`.

    Energy is measured where `power_is_measured`, else modelled.
    """

    controller: str
    seed: int
    metrics: EpisodeMetrics
    iterations: int
    tokens_per_iteration: float
    decision_s: float
    """Mean time that the controller took in an iteration (a median would hide a held decision)."""
    joules_per_token: float
    power_is_measured: bool
    clock_s: float
    capped: bool
    """True when `max_iterations` ended it, not the arrivals or the horizon."""
    joules_per_valid_token: float = NOTHING
    busy_s: float = NOTHING
    valid_tokens_per_device_s: float = NOTHING
    drafted_nodes: int = 0
    rejected_nodes: int = 0
    wasted_nodes: int = 0
    waste_share: float = NOTHING
    settings: Settings = field(default_factory=dict)
    """What the engine was set to at the start, by `engine_settings`."""


@dataclass(frozen=True)
class Comparison:
    """All runs, by controller, in the order of `seeds`."""

    seeds: tuple[int, ...]
    runs: dict[str, tuple[Run, ...]]

    def values(self, controller: str, figure: Callable[[Run], float]) -> Floats:
        """[seeds] of one figure, paired over controllers by position."""
        return np.array([figure(run) for run in self.runs[controller]], dtype=np.float64)


class Store(Protocol):
    """Where runs are kept, such as `eval.stored_runs.StoredRuns`."""

    def load(self, controller: str, seed: int) -> Run | None:
        """The run, if it was done before."""

    def save(self, run: Run) -> None:
        """Keep it."""


def run(
    controllers: Mapping[str, Controller],
    episodes: Sequence[SeededRequests],
    engines: MakeEngine | Mapping[str, MakeEngine],
    max_iterations: int | None = None,
    announce: Announce | None = None,
    watch: Watch | None = None,
    stored: Store | None = None,
) -> Comparison:
    """Serve each episode once with each controller.

    `engines` builds a fresh engine whose horizon ends an episode: what remains is a miss for all
    alike. One for everybody, or by controller for those that need engines of their own.
    `max_iterations` is a guard against a controller that makes no progress. `announce` is told
    (controller, runs done, runs in all) before each run. `watch` makes the observers of a run
    (controller, seed); they look on between iterations and cost no engine time. What `stored` has
    is not served again, and gets every run that is.
    """
    names = list(controllers)
    makers = dict.fromkeys(names, engines) if callable(engines) else engines
    done: dict[str, list[Run]] = {name: [] for name in names}
    total = len(names) * len(episodes)
    for index, episode in enumerate(episodes):
        turn = index % max(len(names), 1)
        for name in names[turn:] + names[:turn]:
            before = None if stored is None else stored.load(name, episode.seed)
            if before is not None:
                done[name].append(before)
                continue
            if announce is not None:
                announce(name, sum(map(len, done.values())), total)
            engine = makers[name](episode.requests())
            with Observers([]) if watch is None else watch(name, episode.seed) as observers:
                made = serve(
                    name, controllers[name], episode.seed, engine, max_iterations, observers
                )
            done[name].append(made)
            if stored is not None:
                stored.save(made)
    return Comparison(tuple(e.seed for e in episodes), {n: tuple(r) for n, r in done.items()})


class Tally:
    """An observer that adds up what a run cost."""

    def __init__(self) -> None:
        self.cost = Cost()
        self.power_is_measured = False

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Add an iteration."""
        self.cost.add(outcome)
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
    return serve_recorded(name, controller, seed, engine, max_iterations, observers)[0]


def serve_recorded(
    name: str,
    controller: Controller,
    seed: int,
    engine: Engine,
    max_iterations: int | None = None,
    observers: Iterable[Observer] = (),
) -> tuple[Run, list[RequestRecord]]:
    """As `serve`, with the records that it summed up, completed by `eval.emissions`."""
    tally, emissions = Tally(), Emissions()
    settings = engine_settings(engine)
    watching: list[Observer] = [tally, emissions, *observers]
    records = emissions.completed(serve_observed(engine, controller, watching, max_iterations))
    metrics, cost = summarise(records, engine.classes), tally.cost
    left = any(record.status is Status.UNFINISHED for record in records)
    served = Run(
        controller=name,
        seed=seed,
        metrics=metrics,
        iterations=cost.iterations,
        tokens_per_iteration=cost.tokens_per_iteration,
        decision_s=cost.decision_s,
        joules_per_token=cost.joules_per(metrics.output_tokens),
        power_is_measured=tally.power_is_measured,
        clock_s=engine.clock_s,
        capped=left and max_iterations is not None and cost.iterations >= max_iterations,
        joules_per_valid_token=cost.joules_per(metrics.valid_tokens),
        busy_s=cost.busy_s,
        valid_tokens_per_device_s=cost.tokens_per_device_s(metrics.valid_tokens),
        drafted_nodes=cost.drafted_nodes,
        rejected_nodes=cost.rejected_nodes,
        wasted_nodes=cost.wasted_nodes,
        waste_share=cost.waste_share,
        settings=settings,
    )
    return served, records


def engine_settings(engine: Engine) -> Settings:
    """What the engine decides by itself, as it stands before the first plan."""
    settings = engine.settings
    return {
        "order": settings.order,
        "prefill_tokens": settings.prefill_tokens,
        "max_running": engine.max_running,
        "overload": settings.overload.policy,
    }
