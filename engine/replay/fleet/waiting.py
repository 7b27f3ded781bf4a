"""Before a decision: who has come, and who of those that wait gets a free slot.

The fleet's `engine.scheduler`. Who waits stands in order of arrival, so of equals the first is
meant; under every order a look at all of them finds who is next.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.inner import BORROWED, INNER
from engine.replay.fleet.pressure import come_back, held
from engine.replay.fleet.state import FleetState, Record


@njit(**INNER)
def take_arrivals(r: int, fleet: FleetState) -> None:
    """Queue who has come by now."""
    replica, requests = fleet.replicas[r], fleet.requests[r]
    while replica.arrived < replica.requests:
        if requests[replica.arrived].arrival_s > replica.clock_s:
            return
        fleet.queue[r, replica.waiting] = replica.arrived
        fleet.queued[r, requests[replica.arrived].slo_class] += 1
        replica.waiting += 1
        replica.arrived += 1


@njit(**INNER)
def fill_slots(r: int, fleet: FleetState) -> None:
    """Give free slots, the lowest first, to whoever is next, as many as may run."""
    replica, queue = fleet.replicas[r], fleet.queue[r]
    if replica.waiting == 0:
        return
    most = replica.most_running
    if replica.has_pressure:
        most = min(most, replica.allowed)
    room = most - held(fleet.slots[r])
    for s in range(fleet.slots.shape[1]):
        if replica.waiting == 0 or room <= 0:
            return
        if fleet.slots[r, s].active:
            continue
        place = _foremost(r, fleet)
        q = queue[place]
        for i in range(place, replica.waiting - 1):
            queue[i] = queue[i + 1]
        replica.waiting -= 1
        fleet.queued[r, fleet.requests[r, q].slo_class] -= 1
        _admit(r, s, q, fleet)
        room -= 1


@njit(**INNER)
def _foremost(r: int, fleet: FleetState) -> int:
    """Place in the queue of who is next; somebody must wait."""
    replica, queue, requests = fleet.replicas[r], fleet.queue[r], fleet.requests[r]
    if replica.has_pressure:  # who had to give way goes before everybody
        first = -1
        for i in range(replica.waiting):
            if requests[queue[i]].preempted > 0 and (first < 0 or queue[i] < queue[first]):
                first = i
        if first >= 0:
            return first
    # Who came first of a class is the foremost of it under every order, for no key falls with the
    # arrival: so nobody looks on once everybody's first was seen.
    best, unseen = 0, 0
    seen = fleet.scratch.seen
    seen[:] = False
    for c in range(len(seen)):
        unseen += int(fleet.queued[r, c] > 0)
    for i in range(replica.waiting):
        c = requests[queue[i]].slo_class
        if seen[c]:
            continue
        if goes_before(queue[i], queue[best], replica.clock_s, requests, fleet.classes):
            best = i
        seen[c] = True
        unseen -= 1
        if unseen == 0:
            break
    return best


@njit(**BORROWED)
def goes_before(a: int, b: int, clock_s: float, requests: Record, classes: Record) -> bool:
    """Whether request a goes before request b: `engine.orders.place`, where nobody is displaced.

    `requests` [Q] are one replica's.
    """
    first, second = requests[a], requests[b]
    lift_a, lift_b = classes[first.slo_class].lift_s, classes[second.slo_class].lift_s
    lifted_a = clock_s - first.arrival_s >= lift_a
    lifted_b = clock_s - second.arrival_s >= lift_b
    if lifted_a != lifted_b:
        return lifted_a
    key_a = first.arrival_s + lift_a if lifted_a else first.order_key
    key_b = second.arrival_s + lift_b if lifted_b else second.order_key
    return key_a < key_b or (key_a == key_b and a < b)


@njit(**INNER)
def _admit(r: int, s: int, q: int, fleet: FleetState) -> None:
    """The slot is the request's; what the last one has left there is wiped out."""
    slot, request, history = fleet.slots[r, s], fleet.requests[r, q], fleet.history
    if request.preempted > 0:
        come_back(r, s, q, fleet)
        return
    slot.active, slot.decoding = True, False
    slot.request, slot.slo_class, slot.text = q, request.slo_class, request.text
    slot.max_tokens, slot.arrival_s = request.max_tokens, request.arrival_s
    slot.tpot_s = fleet.classes[request.slo_class].tpot_s
    slot.admitted_s, slot.first_token_s = fleet.replicas[r].clock_s, np.nan
    slot.entered_s, slot.to_prefill = slot.admitted_s, request.prompt_tokens
    slot.prefilled = slot.context = slot.drafted_to = slot.emitted = 0
    slot.valid_tokens = slot.iterations = slot.verified_nodes = 0
    slot.draft_confidence = 0.0
    for d in range(history.proposed.shape[2]):
        history.proposed[r, s, d] = history.accepted[r, s, d] = 0.0
        history.since_proposed[r, s, d] = 0
