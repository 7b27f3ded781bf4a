"""Serving, up to the next decision and on from there, and what that has brought."""

from __future__ import annotations

import math

from numba import njit

from engine.kernels.inner import BORROWED, INNER
from engine.protocol import Bools
from engine.replay.fleet.iteration import iterate
from engine.replay.fleet.pressure import withdraw
from engine.replay.fleet.prompts import read_prompts
from engine.replay.fleet.state import FleetPlan, FleetState, Record
from engine.replay.fleet.waiting import fill_slots, take_arrivals


@njit(**BORROWED)
def serve(acting: Bools, iterations: int, plan: FleetPlan, fleet: FleetState) -> None:
    """Serve so many iterations on every acting replica [R], fewer where its trace ends."""
    for r in range(len(acting)):
        if acting[r]:
            serve_replica(r, iterations, plan, fleet)


@njit(**INNER, inline="always")
def serve_replica(r: int, iterations: int, plan: FleetPlan, fleet: FleetState) -> None:
    """Serve so many iterations on replica r, fewer where its trace ends."""
    left, slots = iterations, fleet.slots.shape[1]
    while left > 0 and fleet.replicas[r].ready:
        iterate(r, plan, fleet)
        fleet.replicas[r].most_running = math.ceil(plan.running[r] * slots)
        reach_decision(r, fleet)
        left -= 1


@njit(**INNER)
def hand_over(r: int, fleet: FleetState, tally: Record, ended: Record) -> None:
    """Write what replica r brought since the last look to [R] TALLY and [R, C] ENDED; forget it."""
    tally[r] = fleet.tally[r]
    wipe_tally(fleet.tally[r])
    for c in range(ended.shape[1]):
        ended[r, c] = fleet.ended[r, c]
        wipe_ended(fleet.ended[r, c])


@njit(**INNER)
def wipe_tally(tally: Record) -> None:
    """Nothing was brought."""
    tally.busy_s = tally.energy_joules = 0.0
    tally.prefill_s = tally.draft_s = tally.select_s = 0.0
    tally.verify_s = tally.controller_s = tally.other_s = 0.0
    tally.iterations = tally.emitted = tally.valid = tally.verified = 0
    tally.finished = tally.attained = tally.missed = 0


@njit(**INNER)
def wipe_ended(ended: Record) -> None:
    """Nobody has ended."""
    ended.counted = ended.attained = ended.good_tokens = 0


@njit(**BORROWED)
def reach_decision(r: int, fleet: FleetState) -> None:
    """Admit and prefill until somebody decodes, and so replica r is `ready`.

    It is not where its trace is served or cut. The fleet's `engine.loop.Engine.next_decision`.
    """
    replica, slots, horizon_s = fleet.replicas[r], fleet.slots[r], fleet.rules.horizon_s
    replica.ready = False
    replica.work_before_s, replica.joules_before = replica.work_s, replica.joules
    _begin(replica)
    while replica.clock_s < horizon_s and not replica.ready:
        if replica.has_pressure:
            withdraw(r, fleet)
        take_arrivals(r, fleet)
        fill_slots(r, fleet)
        if _serves(slots):
            read_prompts(r, fleet)
            replica.ready = _decodes(slots)
        elif replica.arrived < replica.requests:
            # Nothing to serve: the clock jumps, and no work carries over the gap.
            at_s = min(fleet.requests[r, replica.arrived].arrival_s, horizon_s)
            replica.clock_s = max(replica.clock_s, at_s)
            _begin(replica)
        else:
            return


@njit(**INNER)
def _serves(slots: Record) -> bool:
    """Whether any of the slots [S] is held: `any` of a field looks at all of them, and slowly."""
    for s in range(len(slots)):  # noqa: SIM110 - Numba compiles no generator expressions
        if slots[s].active:
            return True
    return False


@njit(**INNER)
def _decodes(slots: Record) -> bool:
    """Whether anybody in the slots [S] decodes."""
    for s in range(len(slots)):  # noqa: SIM110
        if slots[s].decoding:
            return True
    return False


@njit(**INNER)
def _begin(replica: Record) -> None:
    """An iteration begins now."""
    replica.start_s = replica.clock_s
    replica.prefill_s = 0.0
    replica.prefilled = replica.chunks = 0
