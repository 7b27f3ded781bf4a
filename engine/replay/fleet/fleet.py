"""R replicas of the engine on replay, in lock-step: what others use of this package.

Each replica serves its own requests on its own clock. What is refused, and how far it agrees with
the single engine, is said in the package's docstring.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Bools
from engine.replay.fleet.costs import tabulate, with_level
from engine.replay.fleet.faults import levels_needed, no_faults, with_faults
from engine.replay.fleet.filling import fill, in_order, memory_refusal, refusal, with_room
from engine.replay.fleet.records import records_of
from engine.replay.fleet.state import (
    ENDED,
    REPLICA,
    REQUEST,
    SLOT,
    TALLY,
    FleetPlan,
    FleetState,
    Rules,
    class_records,
    new_history,
    new_scratch,
    open_fleet_book,
)
from engine.replay.fleet.steps import reach_decision, serve
from engine.replay.power_levels import LEVELS
from engine.replay.server import ReplayServer
from engine.request import Request, RequestRecord
from engine.snapshot_origin import Snapshot, digest
from engine.workload.build import disturbances_of
from engine.workload.disturbances import Disturbances

FIRST_ROOM = 256  # requests of a replica before its rows grow


class Brought(NamedTuple):
    """What iterations brought; fresh arrays."""

    tally: np.ndarray  # [R] TALLY
    ended: np.ndarray  # [R, C] ENDED


class Fleet:
    """R replicas on one recording and profile; `state` holds all of it."""

    def __init__(
        self, server: ReplayServer, replicas: int, classes: ClassTable = DEFAULT_CLASSES
    ) -> None:
        """No replica has requests yet. Raises UserError for settings that no fleet serves."""
        if type(replicas) is not int or replicas < 1:
            raise UserError(f"replicas is {replicas!r}; expected a whole number of at least 1")
        if reason := refusal(server):
            raise UserError(reason)
        alone = server.engine([], classes)  # says what a single replica begins with
        settings, limits, pool = alone.settings, alone.limits, alone.backend.pool
        self.server, self.replicas, self.classes = server, replicas, classes
        self.settings, self.limits, self.unloaded_tpot_s = settings, limits, alone.unloaded_tpot_s
        self.memory_bytes = alone.backend.memory_bytes()
        self.kv_tokens = pool.pages * pool.page_size
        self._idle_watts = alone.energy.watts
        self._served: list[Sequence[Request]] = [()] * replicas
        self.state = FleetState(
            rules=Rules(
                settings.prefill_tokens,
                float(settings.horizon_s),
                float(alone.decision_s),
                limits.max_depth,
                limits.max_width,
                limits.max_nodes,
                server.power_levels.cap_watts(LEVELS),
                server.power_levels.peak_watts,
                settings.order == "edf",
            ),
            classes=class_records(classes, self.unloaded_tpot_s),
            costs=tabulate(server.profile, settings),
            book=open_fleet_book(server.recording),
            requests=np.zeros((replicas, FIRST_ROOM), REQUEST),
            queue=np.zeros((replicas, FIRST_ROOM), np.int64),
            queued=np.zeros((replicas, len(classes.classes)), np.int64),
            slots=np.zeros((replicas, limits.slots), SLOT),
            history=new_history(replicas, limits),
            replicas=np.zeros(replicas, REPLICA),
            tally=np.zeros(replicas, TALLY),
            ended=np.zeros((replicas, len(classes.classes)), ENDED),
            wrong=no_faults(replicas),
            parked=np.zeros((replicas, limits.slots), SLOT),
            parked_history=new_history(replicas, limits),
            scratch=new_scratch(limits, len(classes.classes), server.recording.places),
        )

    @property
    def ready(self) -> Bools:
        """[R] whether a plan is due; False before an episode begins and at the end of its trace."""
        return np.array(self.state.replicas["ready"])

    def begin(
        self, replica: int, requests: Sequence[Request], disturbances: Disturbances | None = None
    ) -> None:
        """A fresh episode on one replica, up to its first decision; the others stay where they are.

        `disturbances` None takes those that drawn requests bring along. Raises UserError for
        requests that an engine or a fleet does not serve.
        """
        wrong = disturbances_of(requests) if disturbances is None else disturbances
        if wrong.has("memory") and (reason := memory_refusal(self.server)):
            raise UserError(reason)
        ordered = in_order(self.server, requests, self.classes)
        self.state = state = with_room(self.state, len(ordered))
        state.slots[replica] = np.zeros((), SLOT)
        state.parked[replica] = np.zeros((), SLOT)
        state.tally[replica] = np.zeros((), TALLY)
        state.ended[replica] = np.zeros((), ENDED)
        state.replicas[replica] = np.zeros((), REPLICA)
        state.replicas[replica]["watts"] = self._idle_watts
        state.replicas[replica]["most_running"] = self.limits.slots
        fill(state, replica, ordered, self.settings.order, self.classes)
        self._served[replica] = ordered
        if wrong.of:
            self.state = with_faults(state, replica, wrong, cast("Any", requests))
            self.prepare_levels()
        if self.state.replicas[replica]["has_caps"]:
            self.state.replicas[replica]["watts"] = self.state.costs.stage_idle_watts
        reach_decision(replica, self.state)

    def prepare_levels(self) -> None:
        """Work out what passes cost under the power caps that are to come."""
        state = self.state
        costs = state.costs
        for level in levels_needed(state).tolist():
            if costs.levels.row[level] < 0:
                device = self.server.power_levels.at(level)
                costs = with_level(costs, level, device, self.settings)
        self.state = state._replace(costs=costs)

    def serve(self, plan: FleetPlan, iterations: int = 1, acting: Bools | None = None) -> Brought:
        """Serve so many iterations on every replica under `plan`, fewer where its trace ends.

        `acting` [R] leaves the others alone. Returns what was brought since the last call; of
        requests that ended before the first decision the first call tells.
        """
        everybody = np.ones(self.replicas, np.bool_)
        serve(everybody if acting is None else acting, iterations, plan, self.state)
        brought = Brought(self.state.tally, self.state.ended)
        self.state = self.state._replace(
            tally=np.zeros(self.replicas, TALLY), ended=np.zeros(brought.ended.shape, ENDED)
        )
        return brought

    def plan(self, depth: int, width: int, nodes: int, node_budget: int | None = None) -> FleetPlan:
        """The same tree for all, in every slot; the budget is for a replica's whole batch."""
        shape = (self.replicas, len(self.classes.classes))
        most = self.limits.slots * self.limits.max_nodes
        return FleetPlan(
            depth=np.full(shape, depth),
            width=np.full(shape, width),
            nodes=np.full(shape, nodes),
            node_budget=np.full(self.replicas, most if node_budget is None else node_budget),
            running=np.ones(self.replicas),
        )

    def snapshot(self) -> Snapshot:
        """Every replica's episode as it stands (`engine.replay.fleet.snapshot`)."""
        from engine.replay.fleet.snapshot import take  # deferred: it knows this class

        return take(self)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from there. Raises UserError where it was taken on something else."""
        from engine.replay.fleet.snapshot import put_back

        put_back(self, snapshot)

    @cached_property
    def recording_digest(self) -> str:
        """What tells the recording from others, whoever opened it."""
        return digest(self.server.book)

    def records(self, replica: int) -> list[RequestRecord]:
        """Every request that has come to the replica: those that have ended, in order of their end,

        then those that run or wait, as unfinished (`Engine.close_records`).
        """
        return records_of(self.state, replica, self._served[replica])
