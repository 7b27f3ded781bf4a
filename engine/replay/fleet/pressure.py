"""Memory that is withdrawn from a replica, and who gives way: pools of one page a request.

A page is then a slot's whole cache, so a withdrawal bounds how many slots may be held: the fleet's
`engine.fitting` and `engine.paging`. Whoever gives way is parked, goes before everybody who waits,
and is read anew when it is back, as in `engine.ledger`. There are never more parked than slots,
since nobody new is admitted before them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.inner import INNER
from engine.replay.fleet.costs import Whole
from engine.replay.fleet.disturbing import value_now
from engine.replay.fleet.state import FleetState, History, Record
from engine.workload.disturbances import MEMORY


@njit(**INNER)
def withdraw(r: Whole, fleet: FleetState) -> None:
    """Note how many slots may be held at replica r's clock."""
    slots = fleet.slots.shape[1]
    withdrawn = min(int(value_now(r, np.int64(MEMORY), fleet) * slots), slots - 1)
    fleet.replicas[r].allowed = slots - withdrawn


@njit(**INNER)
def held(slots: Record) -> int:
    """How many of the slots [S] are held."""
    count = 0
    for s in range(len(slots)):
        count += int(slots[s].active)
    return count


@njit(**INNER)
def give_way(r: Whole, fleet: FleetState) -> None:
    """Park who is last in the order until the others may stay."""
    replica, slots = fleet.replicas[r], fleet.slots[r]
    for _ in range(held(slots) - replica.allowed):
        last, last_key = -1, 0.0
        for s in range(len(slots)):
            if not slots[s].active:
                continue
            key = fleet.requests[r, slots[s].request].order_key
            if fleet.rules.is_edf:
                key = _due_s(slots[s], fleet.classes[slots[s].slo_class], replica.clock_s)
            # Of equals the later request, as requests stand in order of arrival.
            if (
                last < 0
                or key > last_key
                or (key == last_key and slots[s].request > slots[last].request)
            ):
                last, last_key = s, key
        _park(r, np.int64(last), fleet)


@njit(**INNER)
def _due_s(slot: Record, of: Record, clock_s: float) -> float:
    """Its deadline, had the slot's request to wait from now on (`engine.orders.deadline_s`)."""
    due_s = min(slot.arrival_s + of.completion_s, clock_s + of.queue_age_s)
    return due_s if slot.emitted > 0 else min(due_s, slot.arrival_s + of.ttft_s)


@njit(**INNER)
def _park(r: Whole, s: Whole, fleet: FleetState) -> None:
    """The slot is free, and its request waits again."""
    replica, slot = fleet.replicas[r], fleet.slots[r, s]
    q = slot.request
    request, place = fleet.requests[r, q], _parked(fleet.parked[r], np.int64(-1))
    fleet.parked[r, place] = slot
    _copy(fleet.history, r, s, fleet.parked_history, place)
    slot.active = slot.decoding = False
    request.preempted += 1
    request.parked_s = replica.clock_s
    fleet.queue[r, replica.waiting] = q
    replica.waiting += 1
    fleet.queued[r, request.slo_class] += 1


@njit(**INNER)
def come_back(r: Whole, s: Whole, q: Whole, fleet: FleetState) -> None:
    """Request q goes on in slot s where it was, once its text is read again."""
    slot, request, clock_s = fleet.slots[r, s], fleet.requests[r, q], fleet.replicas[r].clock_s
    place = _parked(fleet.parked[r], q)
    fleet.slots[r, s] = fleet.parked[r, place]
    _copy(fleet.parked_history, r, place, fleet.history, s)
    fleet.parked[r, place].active = False
    slot.active, slot.decoding, slot.entered_s = True, False, clock_s
    # The root of its next tree is emitted but was never in the cache.
    slot.to_prefill = request.prompt_tokens + max(slot.emitted - 1, 0)
    slot.prefilled = slot.context = slot.drafted_to = 0
    request.requeued_s = max(clock_s - request.parked_s, request.requeued_s)


@njit(**INNER)
def _parked(parked: Record, q: Whole) -> int:
    """Where of [S] request q is parked; -1 asks for a free place."""
    for place in range(len(parked)):
        if q < 0 and not parked[place].active:
            return place
        if q >= 0 and parked[place].active and parked[place].request == q:
            return place
    return -1


@njit(**INNER)
def _copy(of: History, r: Whole, s: Whole, to: History, t: Whole) -> None:
    """What was proposed to slot s, to place t."""
    for d in range(of.proposed.shape[2]):  # assigning whole rows takes long to compile
        to.proposed[r, t, d], to.accepted[r, t, d] = of.proposed[r, s, d], of.accepted[r, s, d]
        to.since_proposed[r, t, d] = of.since_proposed[r, s, d]


@njit(**INNER)
def age_all(r: Whole, fleet: FleetState, oldest_s: np.ndarray) -> None:
    """Fill in how long the first of every class [C] has waited; 0 where none waits."""
    replica = fleet.replicas[r]
    oldest_s[:] = 0.0
    for i in range(replica.waiting):
        request = fleet.requests[r, fleet.queue[r, i]]
        since_s = request.parked_s if request.preempted > 0 else request.arrival_s
        age_s = max(replica.clock_s - since_s, 0.0)
        oldest_s[request.slo_class] = max(oldest_s[request.slo_class], age_s)
