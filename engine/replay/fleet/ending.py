"""A request has ended: its line is written, the slot is free, and its objectives are judged.

Judged as `engine.request.RequestRecord` judges; nobody here is withdrawn.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.inner import BORROWED, INNER
from engine.replay.fleet.state import FleetState, Record


@njit(**INNER)
def end_request(r: int, s: int, fleet: FleetState) -> None:
    """Free the slot, write the line, and count the request with the iterations."""
    slot, tally, replica = fleet.slots[r, s], fleet.tally[r], fleet.replicas[r]
    request = fleet.requests[r, slot.request]
    slot.active = slot.decoding = False
    replica.ended += 1
    request.ended, request.finish_s = replica.ended, replica.clock_s
    write_line(slot, request)
    of = fleet.classes[slot.slo_class]
    met = attained(request, of)
    tightest_s = min(of.tpot_s, of.ttft_s, of.completion_s, of.queue_age_s)
    tally.finished += 1
    tally.attained += int(met)
    if tightest_s < np.inf:  # else nothing was promised
        ended = fleet.ended[r, slot.slo_class]
        ended.counted += 1
        ended.attained += int(met)
        ended.good_tokens += slot.emitted if met else 0
        tally.missed += int(not met)


@njit(**BORROWED)
def write_line(slot: Record, request: Record) -> None:
    """What the slot holds of its request, which may have ended or not."""
    request.admitted_s, request.first_token_s = slot.admitted_s, slot.first_token_s
    request.emitted, request.valid_tokens = slot.emitted, slot.valid_tokens
    request.iterations, request.verified_nodes = slot.iterations, slot.verified_nodes


@njit(**BORROWED, error_model="numpy")
def attained(request: Record, of: Record) -> bool:
    """Whether a finished request met all objectives of its class."""
    tpot_met = request.emitted <= 1
    if not tpot_met:
        tpot_s = (request.finish_s - request.first_token_s) / (request.emitted - 1)
        tpot_met = tpot_s <= of.tpot_s
    ttft_met = request.first_token_s - request.arrival_s <= of.ttft_s
    completion_met = request.finish_s - request.arrival_s <= of.completion_s
    waited_s = max(request.admitted_s - request.arrival_s, request.requeued_s)
    return tpot_met and ttft_met and completion_met and waited_s <= of.queue_age_s
