"""What is called from Python: once up to the first decision, then once a step."""

from __future__ import annotations

from numba import njit

from engine.protocol import Bools
from engine.replay.fleet.iteration import iterate
from engine.replay.fleet.prompts import read_prompts
from engine.replay.fleet.state import FleetPlan, FleetState, Record
from engine.replay.fleet.waiting import fill_slots, take_arrivals


@njit(cache=True)
def serve(acting: Bools, iterations: int, plan: FleetPlan, fleet: FleetState) -> None:
    """Serve so many iterations on every acting replica [R], fewer where its trace ends."""
    for r in range(len(acting)):
        left = iterations if acting[r] else 0
        while left > 0 and fleet.replicas[r].ready:
            iterate(r, plan, fleet)
            reach_decision(r, fleet)
            left -= 1


@njit(cache=True)
def reach_decision(r: int, fleet: FleetState) -> None:
    """Admit and prefill until somebody decodes, and so replica r is `ready`.

    It is not where its trace is served or cut. The fleet's `engine.loop.Engine.next_decision`.
    """
    replica, slots, horizon_s = fleet.replicas[r], fleet.slots[r], fleet.rules.horizon_s
    replica.ready = False
    replica.work_before_s, replica.joules_before = replica.work_s, replica.joules
    _begin(replica)
    while replica.clock_s < horizon_s and not replica.ready:
        take_arrivals(r, fleet)
        fill_slots(r, fleet)
        if slots["active"].any():
            read_prompts(r, fleet)
            replica.ready = slots["decoding"].any()
        elif replica.arrived < replica.requests:
            # Nothing to serve: the clock jumps, and no work carries over the gap.
            at_s = min(fleet.requests[r, replica.arrived].arrival_s, horizon_s)
            replica.clock_s = max(replica.clock_s, at_s)
            _begin(replica)
        else:
            return


@njit(cache=True)
def _begin(replica: Record) -> None:
    """An iteration begins now."""
    replica.start_s = replica.clock_s
    replica.prefill_s = 0.0
    replica.prefilled = replica.chunks = 0
