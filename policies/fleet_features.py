"""What a learned controller sees of a replica of a fleet: a kernel for `envs.fleet_kernels`.

The numbers of `policies.features.observe`, which an exported controller calls, in its order of
operations; a test holds the two together. Numba, so no exported controller imports this.
"""

from __future__ import annotations

from math import log1p
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.inner import INNER
from engine.protocol import Floats, Ints
from engine.replay.fleet.costs import DRAFT_FIRST, DRAFT_NEXT, HOST, VERIFY, Costs, cost_s
from engine.replay.fleet.disturbing import cap_watts_now
from engine.replay.fleet.fleet import Fleet
from engine.replay.fleet.pressure import age_all
from engine.replay.fleet.state import FleetPlan, FleetState, Record
from policies.features import (
    ACCEPTANCE,
    BY_CLASS,
    EVIDENCE,
    EVIDENCE_HALF,
    LOG_LOAD,
    LOG_STEPS,
    LOG_TOPS,
    POSITIONS,
    PREVIOUS,
    QUEUED,
    REMAINING,
    SINCE,
    SINCE_ITERATIONS,
    SLACK_MIN,
    SLACK_TOKENS,
)
from policies.fleet_shifts import FleetShifts, look
from policies.shifts import SPAN_TOKEN_TIMES

# Looked up: an observation has so many of them that computing logarithms would be felt.
SINCE_LOGS = np.array([log1p(n) / LOG_TOPS[0] for n in range(SINCE_ITERATIONS + 1)])
LOG_QUEUED, LOG_WATTS = log1p(255), log1p(16383)


class Scales(NamedTuple):
    """What features are shares of."""

    max_depth: int
    max_width: int
    max_nodes: int
    kv_tokens: int
    unloaded_tpot_s: float
    memory: float  # the feature itself: a replica's memory never changes


def scales_of(fleet: Fleet) -> Scales:
    """Those of one fleet's replicas."""
    limits = fleet.limits
    return Scales(
        limits.max_depth,
        limits.max_width,
        limits.max_nodes,
        fleet.kv_tokens,
        fleet.unloaded_tpot_s,
        log1p(fleet.memory_bytes / 2**30) / log1p(1023),
    )


class Scratch(NamedTuple):
    """Where an observation is worked out; what stands here means nothing between two."""

    exact: Floats  # [F] rounded at the end, once
    by_class: Floats  # [C, BY_CLASS] the first of them
    members: Ints  # [C] who decode
    oldest_s: Floats  # [C]
    newcomers: Ints  # [C]
    tree: Ints  # [3, C] depth, width and nodes in force, within the limits


def new_scratch(classes: int, features: int) -> Scratch:
    """For a fleet's observations, one after the other."""
    exact = np.empty(features)
    by_class = exact[: classes * BY_CLASS].reshape(classes, BY_CLASS)
    members, newcomers = np.empty((2, classes), np.int64)
    tree = np.empty((3, classes), np.int64)
    return Scratch(exact, by_class, members, np.empty(classes), newcomers, tree)


@njit(**INNER)
def observe_replica(
    r: int,
    fleet: FleetState,
    previous: FleetPlan,
    shifts: FleetShifts,
    scales: Scales,
    scratch: Scratch,
    out: NDArray[np.float32],
) -> bool:
    """Fill out [F] with what replica r shows; whether every feature is a finite number.

    `previous` is the plan by class now in force, without margins.
    """
    exact, block, count, oldest_s, newcomers, tree = scratch
    slots, n_classes = fleet.slots.shape[1], len(count)
    running, prefilling, held = _sum_slots(r, fleet, block, count)
    age_queue(r, fleet, oldest_s)
    for c in range(n_classes):
        scale_class(block[c], count[c], slots)
        block[c, PREVIOUS] = previous.depth[r, c] / scales.max_depth
        block[c, PREVIOUS + 1] = previous.width[r, c] / scales.max_width
        block[c, PREVIOUS + 2] = previous.nodes[r, c] / scales.max_nodes
        block[c, PREVIOUS + 3] = 1.0
        tree[0, c] = min(previous.depth[r, c], scales.max_depth)
        tree[1, c] = min(previous.width[r, c], scales.max_width)
        tree[2, c] = min(previous.nodes[r, c], scales.max_nodes)
    first = block[:, ACCEPTANCE], block[:, EVIDENCE], block[:, SINCE]
    look(r, fleet, shifts, *first, prefilling, scales.unloaded_tpot_s, newcomers)
    for c in range(n_classes):
        _scale_tails(r, c, fleet, shifts, oldest_s[c], scales.unloaded_tpot_s, block[c, SINCE:])
        for i in range(BY_CLASS):
            low = -1.0 if i == 1 or i == SLACK_MIN else 0.0
            block[c, i] = inside(block[c, i], low)
    rest = exact[n_classes * BY_CLASS :]
    _fill_engine(fleet.replicas[r], running, prefilling, held, scales, slots, rest)
    rest[2] = log1p(fleet.queued[r].sum()) / LOG_QUEUED
    rest[6] = fleet.replicas[r].watts / cap_watts_now(r, fleet)
    ordinary_s, planned_s = predicted_steps(r, fleet, count, tree)
    demand_hz = 0.0
    for c in range(n_classes):
        demand_hz += count[c] / fleet.classes[c].tpot_s
    rest[9] = log1p(ordinary_s / scales.unloaded_tpot_s) / LOG_STEPS
    rest[10] = log1p(planned_s / scales.unloaded_tpot_s) / LOG_STEPS
    rest[11] = log1p(demand_hz * ordinary_s / max(running, 1)) / LOG_LOAD
    rest[12] = 1.0  # a fleet has a profile
    for i in range(len(rest)):
        rest[i] = inside(rest[i], 0.0)
    finite = True
    for i in range(len(exact)):
        out[i] = exact[i]
        finite &= np.isfinite(exact[i])
    return finite


@njit(**INNER)
def _sum_slots(r: int, fleet: FleetState, block: Floats, count: Ints) -> tuple[int, int, int]:
    """Sums by class [C, BY_CLASS] over those that decode, where the features will stand.

    Returns how many decode, how many read their prompts, and the tokens that both hold.
    """
    history, clock_s = fleet.history, fleet.replicas[r].clock_s
    positions = min(POSITIONS, history.proposed.shape[2])
    block[:] = 0.0
    count[:] = 0
    block[:, SLACK_MIN] = SINCE_ITERATIONS
    block[:, SINCE:REMAINING] = SINCE_ITERATIONS
    running = prefilling = held = 0
    for s in range(fleet.slots.shape[1]):
        slot = fleet.slots[r, s]
        if slot.active:
            held += slot.context
            prefilling += int(not slot.decoding)
        if not slot.decoding:
            continue
        running += 1
        slack = slack_tokens(slot, clock_s)
        slack = min(max(slack, -float(SLACK_TOKENS)), float(SLACK_TOKENS)) / SLACK_TOKENS
        of = block[slot.slo_class]
        count[slot.slo_class] += 1
        of[1] += slack
        of[2] += slack < 0
        of[3] += slot.draft_confidence
        of[SLACK_MIN] = min(of[SLACK_MIN], slack)
        of[REMAINING] += slot.max_tokens - slot.emitted
        of[REMAINING + 1] += slot.context
        for d in range(positions):
            of[ACCEPTANCE + d] += history.accepted[r, s, d]
            of[EVIDENCE + d] += history.proposed[r, s, d]
            of[SINCE + d] = min(of[SINCE + d], history.since_proposed[r, s, d])
    return running, prefilling, held


@njit(**INNER)
def slack_tokens(slot: Record, clock_s: float) -> float:
    """Tokens that a request which decodes is ahead of its objective (`View.slack_tokens`)."""
    ahead: float = slot.emitted - 1.0
    if np.isfinite(slot.tpot_s):
        ahead -= (clock_s - slot.first_token_s) / slot.tpot_s
    return ahead


@njit(**INNER)
def class_token_s(c: int, fleet: FleetState, unloaded_tpot_s: float) -> float:
    """As `policies.features.class_token_s`, of one class."""
    objective_s: float = fleet.classes[c].tpot_s
    return objective_s if np.isfinite(objective_s) else unloaded_tpot_s


@njit(**INNER)
def age_queue(r: int, fleet: FleetState, oldest_s: Floats) -> None:
    """Fill in how long the first of every class [C] has waited; 0 where none waits."""
    replica = fleet.replicas[r]
    if replica.has_pressure:  # the queue is in no order of age
        age_all(r, fleet, oldest_s)
        return
    oldest_s[:] = -1.0
    unseen = 0
    for c in range(len(oldest_s)):
        unseen += int(fleet.queued[r, c] > 0)
    for i in range(replica.waiting):
        if unseen == 0:
            break
        request = fleet.requests[r, fleet.queue[r, i]]
        if oldest_s[request.slo_class] < 0:
            oldest_s[request.slo_class] = max(replica.clock_s - request.arrival_s, 0.0)
            unseen -= 1
    for c in range(len(oldest_s)):
        oldest_s[c] = max(oldest_s[c], 0.0)


@njit(**INNER, error_model="numpy")
def scale_class(of: Floats, count: int, slots: int) -> None:
    """From a class's sums to its features, but for the previous plan, the queue and logarithms."""
    most = max(count, 1)
    of[0] = count / slots
    of[1] /= most
    of[2] /= most
    of[3] /= most
    of[SLACK_MIN] = of[SLACK_MIN] if count > 0 else 0.0
    of[REMAINING] /= most
    of[REMAINING + 1] /= most
    for d in range(POSITIONS):
        accepted, proposed = of[ACCEPTANCE + d], of[EVIDENCE + d]
        of[ACCEPTANCE + d] = (accepted + 0.5) / (proposed + 1.0)
        of[EVIDENCE + d] = proposed / (proposed + EVIDENCE_HALF)


@njit(**INNER, error_model="numpy")
def _scale_tails(
    r: int,
    c: int,
    fleet: FleetState,
    shifts: FleetShifts,
    oldest_s: float,
    unloaded_tpot_s: float,
    tails: Floats,
) -> None:
    """The tails of class c: what its queue and its past show, and the logarithms of all."""
    past, queue = shifts.classes[r, c], tails[QUEUED - SINCE :]
    queue[0] = fleet.queued[r, c]
    queue[1] = oldest_s / class_token_s(c, fleet, unloaded_tpot_s)
    queue[2] = past.rate_hz * (SPAN_TOKEN_TIMES * unloaded_tpot_s)
    queue[3] = (fleet.replicas[r].clock_s - past.changed_s) / unloaded_tpot_s
    for i in range(POSITIONS):
        tails[i] = SINCE_LOGS[int(tails[i])]
    for i in range(POSITIONS, len(tails)):
        tails[i] = log1p(max(tails[i], 0.0)) / LOG_TOPS[i]


@njit(**INNER, error_model="numpy")
def predicted_steps(r: int, fleet: FleetState, count: Ints, tree: Ints) -> tuple[float, float]:
    """`policies.predicted_cost.predicted_steps` of replica r, whose classes have `count` [C].

    `tree` [3, C] is the plan in force, within the limits. In the order of operations of
    `engine.profile.hardware_profile.HardwareProfile.passes_s`, on the costs without a power cap
    that comes and goes.
    """
    running = kv_tokens = behind = drafting = drafting_kv_tokens = kept = deepest = 0
    for s in range(fleet.slots.shape[1]):
        slot = fleet.slots[r, s]
        if not slot.decoding:
            continue
        depth, width, nodes = tree[:, slot.slo_class]
        running += 1
        kv_tokens += slot.context
        if depth > 0 and nodes > 0:
            kept += min(nodes, width + (depth - 1) * width * width)
            drafting += 1
            drafting_kv_tokens += slot.context
            behind += slot.context - slot.drafted_to
            deepest = max(deepest, depth)
    if running == 0:
        return 0.0, 0.0
    costs = fleet.costs
    ordinary_s = _cost_s(costs, VERIFY, running, kv_tokens, running)
    ordinary_s += _cost_s(costs, HOST, running, kv_tokens, running)
    if drafting == 0:
        return ordinary_s, ordinary_s
    planned_s = _cost_s(costs, VERIFY, running + kept, kv_tokens, running)
    planned_s += _cost_s(costs, HOST, running + kept, kv_tokens, running)
    further_s = 0.0
    for step in range(2, deepest + 1):
        rows = 0
        for c in range(len(count)):
            if tree[0, c] >= step and tree[2, c] > 0:
                rows += count[c] * tree[1, c]
        further_s += _cost_s(costs, DRAFT_NEXT, rows, drafting_kv_tokens, drafting)
    first_s = _cost_s(costs, DRAFT_FIRST, behind, drafting_kv_tokens, drafting)
    return ordinary_s, planned_s + (first_s + further_s)


@njit(**INNER)
def _cost_s(costs: Costs, kind: np.int64, tokens: int, kv_tokens: int, requests: int) -> float:
    """Seconds of a pass, where nothing goes wrong."""
    curve_s: float = costs.curve_s[kind, tokens]
    return float(
        cost_s(
            curve_s, costs.terms[kind], np.int64(tokens), np.int64(kv_tokens), np.int64(requests)
        )
    )


@njit(**INNER, error_model="numpy")
def _fill_engine(
    replica: Record,
    running: int,
    prefilling: int,
    held: int,
    scales: Scales,
    slots: int,
    out: Floats,
) -> None:
    """The features of the engine as a whole but for its queue, its power cap and its prices."""
    out[0] = running / slots
    out[1] = prefilling / slots
    out[3] = (scales.kv_tokens - held) / max(scales.kv_tokens, 1)
    out[4] = scales.memory
    out[5] = log1p(replica.watts) / LOG_WATTS
    out[7] = 0.0  # power is modelled
    out[8] = log1p(replica.iteration_s / scales.unloaded_tpot_s) / LOG_STEPS


@njit(**INNER)
def inside(value: float, low: float) -> float:
    """Clipped to [low, 1]; what is not a number stays none."""
    if value < low:
        return low
    return 1.0 if value > 1.0 else value
