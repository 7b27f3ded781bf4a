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
from engine.replay.fleet.disturbing import cap_watts_now
from engine.replay.fleet.fleet import Fleet
from engine.replay.fleet.pressure import age_all
from engine.replay.fleet.state import FleetPlan, FleetState, Record
from policies.features import (
    _LINEAR,
    _LOG_TOPS,
    EVIDENCE_HALF,
    POSITIONS,
    SINCE_ITERATIONS,
    SLACK_TOKENS,
    feature_table,
)

LINEAR = len(_LINEAR)
BY_CLASS = LINEAR + len(_LOG_TOPS)
SINCE = len(_LOG_TOPS) - POSITIONS  # the first tail that counts iterations, up to the most
# Looked up: an observation has so many of them that computing logarithms would be felt.
SINCE_LOGS = np.array([log1p(n) / _LOG_TOPS[-1] for n in range(SINCE_ITERATIONS + 1)])
LOG_QUEUED, LOG_WATTS, LOG_STEPS = log1p(255), log1p(16383), log1p(63)


class Scales(NamedTuple):
    """What features are shares of."""

    max_depth: int
    max_width: int
    max_nodes: int
    kv_tokens: int
    unloaded_tpot_s: float
    memory: float  # the feature itself: a replica's memory never changes


class FleetObserver:
    """What observations of one fleet's replicas hold, and how they are scaled."""

    def __init__(self, fleet: Fleet) -> None:
        self.features = feature_table(fleet.classes.names)
        limits = fleet.limits
        self.scales = Scales(
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


def new_scratch(classes: int, features: int) -> Scratch:
    """For a fleet's observations, one after the other."""
    exact = np.empty(features)
    by_class = exact[: classes * BY_CLASS].reshape(classes, BY_CLASS)
    return Scratch(exact, by_class, np.empty(classes, np.int64), np.empty(classes))


@njit(**INNER)
def observe_replica(
    r: int,
    fleet: FleetState,
    previous: FleetPlan,
    scales: Scales,
    scratch: Scratch,
    out: NDArray[np.float32],
) -> bool:
    """Fill out [F] with what replica r shows; whether every feature is a finite number.

    `previous` is the plan by class now in force, without margins.
    """
    exact, block, count, oldest_s = scratch
    slots, n_classes = fleet.slots.shape[1], len(count)
    running, prefilling, held = _sum_slots(r, fleet, block, count)
    age_queue(r, fleet, oldest_s)
    for c in range(n_classes):
        _scale_class(block[c], count[c], slots)
        block[c, 5] = previous.depth[r, c] / scales.max_depth
        block[c, 6] = previous.width[r, c] / scales.max_width
        block[c, 7] = previous.nodes[r, c] / scales.max_nodes
        block[c, 8] = 1.0
        token_s = class_token_s(c, fleet, scales.unloaded_tpot_s)
        tails = block[c, LINEAR:]
        tails[2], tails[3] = fleet.queued[r, c], oldest_s[c] / token_s
        for i in range(SINCE):
            tails[i] = log1p(max(tails[i], 0.0)) / _LOG_TOPS[i]
        for i in range(SINCE, len(tails)):
            tails[i] = SINCE_LOGS[int(tails[i])]
        for i in range(BY_CLASS):
            low = -1.0 if i == 1 or i == 2 else 0.0
            block[c, i] = _inside(block[c, i], low)
    rest = exact[n_classes * BY_CLASS :]
    _fill_engine(fleet.replicas[r], running, prefilling, held, scales, slots, rest)
    rest[2] = log1p(fleet.queued[r].sum()) / LOG_QUEUED
    rest[6] = fleet.replicas[r].watts / cap_watts_now(r, fleet)
    for i in range(len(rest)):
        rest[i] = _inside(rest[i], 0.0)
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
    block[:, 2] = SLACK_TOKENS
    block[:, BY_CLASS - POSITIONS :] = SINCE_ITERATIONS
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
        slack = min(max(slack, -float(SLACK_TOKENS)), float(SLACK_TOKENS))
        of = block[slot.slo_class]
        count[slot.slo_class] += 1
        of[1] += slack
        of[2] = min(of[2], slack)
        of[3] += slack < 0
        of[4] += slot.draft_confidence
        of[LINEAR] += slot.max_tokens - slot.emitted
        of[LINEAR + 1] += slot.context
        for d in range(positions):
            of[9 + d] += history.accepted[r, s, d]
            of[9 + POSITIONS + d] += history.proposed[r, s, d]
            at = BY_CLASS - POSITIONS + d
            of[at] = min(of[at], history.since_proposed[r, s, d])
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
def _scale_class(of: Floats, count: int, slots: int) -> None:
    """From a class's sums to its features, the previous plan and the logarithms left out."""
    most = max(count, 1)
    of[0] = count / slots
    of[1] = of[1] / most / SLACK_TOKENS
    of[2] = of[2] / SLACK_TOKENS if count > 0 else 0.0
    of[3] /= most
    of[4] /= most
    of[LINEAR] /= most
    of[LINEAR + 1] /= most
    for d in range(POSITIONS):
        accepted, proposed = of[9 + d], of[9 + POSITIONS + d]
        of[9 + d] = (accepted + 0.5) / (proposed + 1.0)
        of[9 + POSITIONS + d] = proposed / (proposed + EVIDENCE_HALF)


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
    """The features of the engine as a whole but for its queue and its power cap."""
    out[0] = running / slots
    out[1] = prefilling / slots
    out[3] = (scales.kv_tokens - held) / max(scales.kv_tokens, 1)
    out[4] = scales.memory
    out[5] = log1p(replica.watts) / LOG_WATTS
    out[7] = 0.0  # power is modelled
    out[8] = log1p(replica.iteration_s / scales.unloaded_tpot_s) / LOG_STEPS


@njit(**INNER)
def _inside(value: float, low: float) -> float:
    """Clipped to [low, 1]; what is not a number stays none."""
    if value < low:
        return low
    return 1.0 if value > 1.0 else value
