"""One abrupt change in a replayed episode: the world of `learning_adaptation`, and a passage by it.

Each time one thing changes at one moment, as far as the preset of shifting load goes, at its mean
load. Behind the change it stays so to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.workload import Disturbance, Regime, WorkloadConfig, episode_generator, workload
from eval.runner import SeededRequests

if TYPE_CHECKING:
    from engine.drawing import Draw
    from engine.loop import Engine
    from engine.request import Request

CHANGE_S, END_S, ALONE_S = 120.0, 480.0, 120.0
"""When it changes, when all ends, and how long one side of it lasts in the oracle's search."""
WINDOW_S = 20.0
"""At this load shorter ones hold so few requests that the oracle's own noise hides all."""
EVEN = {"coding": 1.0, "chat": 1.0, "summarization": 1.0}
STRICT = {"coding": 8.0, "chat": 1.0, "summarization": 1.0}
CHANGES: dict[str, dict[str, Any]] = {
    "mix": {"mix": STRICT},
    "acceptance": {"acceptance": 0.7},
    "draft speed": {"draft_time": 2.0},
    "memory": {"memory": 0.5},
}
"""What differs behind the change: of a regime, or the share of the KV pages that is withdrawn."""
MEAN_LOAD = 0.85
"""Of the preset's regimes."""


@dataclass(frozen=True)
class Search:
    """For the oracle: the best fixed tree on either side of a change, on training seeds."""

    change: str
    load: float
    """Factor on the preset's loads."""
    seeds: int
    scale: float = 1.0
    """Of all times, for quick runs."""


@dataclass(frozen=True)
class Passage:
    """A change under one held-out seed."""

    search: Search
    trees: tuple[str, ...]
    """The oracle's, before and behind."""
    specs: Mapping[str, str] = field(default_factory=dict)
    """Controllers by label, as `registry.make` takes them."""
    seed: int = 0


def searched(search: Search) -> list[str]:
    """The trees of a search, before and behind the change."""
    from eval.oracle_sweep import best_tree

    found = []
    for changed in (False, True):
        serve = Served(search, side(search, changed), held_out=False)
        stretches = [serve.episode(seed).requests() for seed in range(search.seeds)]
        found.append(best_tree(serve.server, stretches, search.scale * END_S).tree.spec)
    return found


def passed(passage: Passage) -> dict[str, dict[str, Any]]:
    """By controller, the figures of `eval.adaptation` for its way through the change."""
    from eval.oracle import Switching, adaptations
    from policies import registry

    search = passage.search
    serve = Served(search, changing(search), held_out=True)
    oracle = Switching(
        [0.0, search.scale * CHANGE_S], [registry.make(tree) for tree in passage.trees]
    )
    found = adaptations(
        {label: registry.make(spec) for label, spec in passage.specs.items()},
        oracle,
        serve.episode(passage.seed),
        serve.engine,
        search.scale * END_S,
        search.scale * WINDOW_S,
    )
    return {label: ways[0]._asdict() for label, ways in found.items()}


class Served:
    """Episodes of a workload on replay, and engines for them that end when it does."""

    def __init__(self, search: Search, work: WorkloadConfig, held_out: bool) -> None:
        from engine.replay.server import ReplayServer
        from train.config import Serving
        from train.evaluation import drawing, load_server

        server = load_server(Serving())
        assert isinstance(server, ReplayServer)
        self.server = server
        self._settings = replace(server.settings, horizon_s=search.scale * END_S)
        self._draw: Draw = drawing(server, Serving(), work, held_out)

    def episode(self, seed: int) -> SeededRequests:
        """The one with that seed."""
        return SeededRequests(seed, partial(self._requests, seed))

    def engine(self, requests: list[Request]) -> Engine:
        """A fresh one."""
        return self.server.engine(requests, settings=self._settings)

    def _requests(self, seed: int) -> list[Request]:
        return self._draw(episode_generator(seed))


def changing(search: Search) -> WorkloadConfig:
    """The workload with the change."""
    change_s, end_s = search.scale * CHANGE_S, search.scale * END_S
    before, after = regime(search, change_s, False), regime(search, end_s - change_s, True)
    return _workload(search, (before, after), change_s, end_s)


def side(search: Search, changed: bool) -> WorkloadConfig:
    """One side of the change alone."""
    alone_s = search.scale * ALONE_S
    from_s = 0.0 if changed else alone_s
    return _workload(search, (regime(search, alone_s, changed),), from_s, alone_s)


def regime(search: Search, duration_s: float, changed: bool) -> Regime:
    """One side of the change as a regime; memory is no part of it."""
    differs = {k: v for k, v in CHANGES[search.change].items() if changed and k != "memory"}
    return Regime(duration_s, MEAN_LOAD * search.load, **{"mix": EVEN, **differs})


def _workload(
    search: Search, regimes: tuple[Regime, ...], from_s: float, end_s: float
) -> WorkloadConfig:
    """Of these regimes; where memory is the change, pages are withdrawn from `from_s` on."""
    withdrawn: tuple[Disturbance, ...] = ()
    share = CHANGES[search.change].get("memory")
    if share is not None and from_s < end_s:
        withdrawn = (Disturbance("memory", from_s, end_s, share),)
    return replace(
        workload("steady"),
        name=search.change,
        duration_s=end_s,
        load=None,
        regimes=regimes,
        disturbances=withdrawn,
    )
