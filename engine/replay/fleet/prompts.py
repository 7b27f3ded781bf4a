"""Prompts are read in chunks under an iteration's token budget, as in `engine.prefilling`."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.inner import INNER
from engine.replay.fleet.costs import PREFILL, spend_since
from engine.replay.fleet.disturbing import do_pass
from engine.replay.fleet.ending import end_request
from engine.replay.fleet.state import FleetState, Record
from engine.replay.fleet.waiting import goes_before


@njit(**INNER)
def read_prompts(r: int, fleet: FleetState) -> None:
    """Process prompts in the queue's own order until the budget is spent."""
    replica, budget = fleet.replicas[r], fleet.rules.prefill_tokens
    left = budget - replica.prefilled % budget
    seen_s = replica.clock_s
    while left > 0:
        s = _foremost(r, seen_s, fleet)
        if s < 0:
            return
        slot = fleet.slots[r, s]
        start, end = slot.prefilled, min(slot.to_prefill, slot.prefilled + left)
        is_last = end == slot.to_prefill
        begun_s = replica.work_s
        load = np.int64(end - start), np.int64(start), np.int64(is_last)
        do_pass(r, PREFILL, *load, fleet)
        replica.prefill_s += spend_since(replica, begun_s)
        replica.prefilled += end - start
        replica.chunks += 1
        slot.prefilled = slot.context = end
        left -= end - start
        if is_last:
            _begin_decoding(r, s, fleet)


@njit(**INNER)
def _foremost(r: int, clock_s: float, fleet: FleetState) -> int:
    """The slot whose prompt is read next, -1 for none."""
    slots = fleet.slots[r]
    best = -1
    for s in range(len(slots)):
        if not slots[s].active or slots[s].decoding:
            continue
        if best < 0 or goes_before(
            slots[s].request, slots[best].request, clock_s, fleet.requests[r], fleet.classes
        ):
            best = s
    return best


@njit(**INNER)
def _begin_decoding(r: int, s: int, fleet: FleetState) -> None:
    """The prompt is through, and the recorded answer's first token is out."""
    slot, book = fleet.slots[r, s], fleet.book
    if slot.emitted > 0:  # read anew, for it had to give way
        slot.decoding = True
        return
    slot.decoding, slot.first_token_s = True, fleet.replicas[r].clock_s
    slot.emitted = slot.valid_tokens = 1
    token = book.tokens[book.texts[slot.text].first_output]
    if slot.max_tokens <= 1 or ends_output(token, fleet.requests[r, slot.request]):
        end_request(r, s, fleet)


@njit(**INNER)
def ends_output(token: int, request: Record) -> bool:
    """Whether the token is one of the request's stop tokens."""
    for i in range(len(request.stop)):  # noqa: SIM110 - Numba compiles no generator expressions
        if request.stop[i] >= 0 and request.stop[i] == token:
            return True
    return False
