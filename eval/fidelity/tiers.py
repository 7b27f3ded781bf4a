"""Accepted length of every (depth, width, nodes) tier, on live and on replay: the same or not.

A controller gives every request another depth and width at each of its iterations, with as many
nodes as may be. What would have been accepted of fewer levels and fewer nodes comes with the
outcome (`Outcome.accepted_within`), so that each iteration tells of a whole family of tiers. Which
tier is next hangs on the request and on its own iterations alone, not on when anything happened.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.observability.observing import serve_observed
from engine.protocol import NODE_TIERS, Controller, Ints, Limits, Outcome, Plan, View
from eval.fidelity.runs import Case, forced

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.replay.server import ReplayServer
    from engine.request import RequestRecord
    from engine.serving import LiveServer

STRIDE = 29
"""No factor of the number of trees: one request's first iterations have trees far apart."""
Tier = tuple[int, int, int]
"""Depth, width, nodes."""


class Visit(NamedTuple):
    """One iteration of one request."""

    depth: int
    width: int
    within: Ints
    """[D + 1, N_TIERS] tokens emitted had only that depth and so many nodes been kept."""


class Tiers(NamedTuple):
    """The comparison."""

    seen: Counter[Tier]
    """How often each tier was compared."""
    different: Counter[Tier]
    """How often the lengths differed; a tier that is not in it was equal throughout."""
    visits: int

    def unseen(self, limits: Limits) -> int:
        """Tiers within the limits that no iteration told of."""
        return limits.max_depth * limits.max_width * len(NODE_TIERS) - len(self.seen)


class EveryTree(Controller):
    """Every depth and width in turn, by request; also the observer of what came of it."""

    name = "every-tree"

    def __init__(self) -> None:
        self.visits: dict[int, list[Visit]] = {}

    def reset(self, limits: Limits) -> None:
        """Start anew."""
        self.visits = {}

    def plan(self, view: View) -> Plan:
        """Another tree than the request had before."""
        limits = view.limits
        trees = limits.max_depth * limits.max_width
        at = [len(self.visits.get(request, ())) + request for request in view.request.tolist()]
        tree = STRIDE * np.array(at) % trees
        nodes = np.full(limits.slots, limits.max_nodes)
        return Plan(
            depth=1 + tree % limits.max_depth,
            width=1 + tree // limits.max_depth,
            nodes=nodes,
            margin=np.ones(limits.slots),
            node_budget=int(nodes.sum()),
        )

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Keep what every request's tree brought."""
        plan = self.plan(view)
        for slot in np.flatnonzero(outcome.ran).tolist():
            tree = int(plan.depth[slot]), int(plan.width[slot])
            visit = Visit(*tree, outcome.accepted_within[slot].copy())
            self.visits.setdefault(int(view.request[slot]), []).append(visit)

    def on_record(self, record: RequestRecord) -> None:
        """Iterations are what counts."""

    def close(self) -> None:
        """Nothing is written."""


def compared_tiers(live: LiveServer, replay: ReplayServer, case: Case) -> Tiers:
    """Serve the case on both, live saying what was recorded, and compare tier by tier."""
    requests = case.requests()
    with forced(live, replay) as give:
        give(requests)
        on_live = _visits(live.engine(requests))
    return compare(on_live, _visits(replay.engine(case.requests())))


def compare(live: dict[int, list[Visit]], replay: dict[int, list[Visit]]) -> Tiers:
    """Visit by visit; where one side has more of them, its last ones count as different."""
    seen: Counter[Tier] = Counter()
    different: Counter[Tier] = Counter()
    visits = 0
    for request in live.keys() | replay.keys():
        ours, theirs = live.get(request, []), replay.get(request, [])
        visits += max(len(ours), len(theirs))
        for a, b in zip(ours, theirs, strict=False):
            for depth in range(1, a.depth + 1):
                for n, nodes in enumerate(NODE_TIERS):
                    tier = depth, a.width, nodes
                    seen[tier] += 1
                    different[tier] += int(a.within[depth, n] != b.within[depth, n])
        longer = ours if len(ours) > len(theirs) else theirs
        for extra in longer[min(len(ours), len(theirs)) :]:
            different[extra.depth, extra.width, NODE_TIERS[-1]] += 1
    return Tiers(seen, +different, visits)


def _visits(engine: Engine) -> dict[int, list[Visit]]:
    controller = EveryTree()
    serve_observed(engine, controller, [controller])
    return controller.visits
