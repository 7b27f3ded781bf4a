"""One iteration of one replica: plan, draft, select, verify, commit.

The fleet's `engine.loop.Engine.run_iteration`; costs and clocks are added up in its order, so both
agree to the last bit. No tree is grown: what draft steps cost hangs on the plan alone, and the tree
is looked up whole when it is verified (`trees`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.commit import HISTORY_DECAY
from engine.kernels.inner import INNER
from engine.replay.fleet.costs import (
    DRAFT_FIRST,
    DRAFT_NEXT,
    HOST,
    VERIFY,
    spend_since,
    step_joules,
)
from engine.replay.fleet.disturbing import do_pass, drift_path, value_now
from engine.replay.fleet.ending import end_request
from engine.replay.fleet.pressure import give_way
from engine.replay.fleet.prompts import ends_output
from engine.replay.fleet.state import FleetPlan, FleetState
from engine.replay.fleet.trees import look_up, share_budget
from engine.workload.disturbances import ACCEPTANCE


@njit(**INNER, inline="always")
def iterate(r: int, plan: FleetPlan, fleet: FleetState) -> None:
    """Serve one iteration of replica r under its plan; somebody must decode."""
    replica, tally, decision_s = fleet.replicas[r], fleet.tally[r], fleet.rules.decision_s
    replica.clock_s += decision_s
    if replica.has_pressure:
        give_way(r, fleet)
    planned = _plan_trees(r, plan, fleet)
    if replica.has_drift:
        replica.acceptance = value_now(r, np.int64(ACCEPTANCE), fleet)
    draft_s = _draft(r, fleet)
    if planned > plan.node_budget[r]:
        share_budget(fleet.slots[r], plan.node_budget[r], fleet.book, fleet.scratch)
    verified = _walk(r, fleet)
    verify_s = _charge(r, VERIFY, verified, fleet)
    host_s = _charge(r, HOST, verified, fleet)
    _commit(r, fleet)

    replica.iteration_s = replica.clock_s - replica.start_s
    passes = max(replica.chunks + int(verified > 0), 1)
    tally.iterations += 1
    tally.verified += verified
    tokens_per_pass = (verified + replica.prefilled) / passes
    tally.energy_joules += step_joules(replica, fleet.costs, tokens_per_pass)
    # In the order of `Outcome.iteration_s`.
    tally.busy_s += replica.prefill_s + draft_s + 0.0 + verify_s + decision_s + host_s
    tally.prefill_s += replica.prefill_s
    tally.draft_s += draft_s
    tally.verify_s += verify_s
    tally.controller_s += decision_s
    tally.other_s += host_s


@njit(**INNER)
def _plan_trees(r: int, plan: FleetPlan, fleet: FleetState) -> int:
    """Every slot's place, and its class's plan, clipped as `engine.limits` and `fitting` clip it.

    Counts who decodes, and their cached tokens. Returns the nodes planned for all.
    """
    rules, planned, decoding, kv_tokens = fleet.rules, 0, 0, 0
    for s in range(fleet.slots.shape[1]):
        slot = fleet.slots[r, s]
        slot.depth = slot.nodes = slot.path = 0
        if not slot.decoding:
            continue
        decoding += 1
        kv_tokens += slot.context
        text, c = fleet.book.texts[slot.text], slot.slo_class
        slot.place = text.first_place + slot.emitted - 1
        slot.following = text.first_output + slot.emitted
        nodes = min(max(plan.nodes[r, c], 0), rules.max_nodes)
        slot.width = min(max(plan.width[r, c], 1), rules.max_width)
        if nodes > 0:
            deepest = max(slot.max_tokens - slot.emitted - 1, 0)
            slot.depth = min(max(plan.depth[r, c], 0), rules.max_depth, deepest)
        if slot.depth > 0:
            slot.nodes = min(nodes, slot.width + (slot.depth - 1) * slot.width * slot.width)
        planned += slot.nodes
    fleet.replicas[r].decoding, fleet.replicas[r].kv_tokens = decoding, kv_tokens
    return planned


@njit(**INNER)
def _draft(r: int, fleet: FleetState) -> float:
    """Charge every draft step for the slots that take part in it; returns the seconds.

    One look at the slots: each step has those of the step before, less those that end there.
    """
    replica, slots = fleet.replicas[r], fleet.slots[r]
    ends = fleet.scratch.ends  # by depth: rows, tokens, requests
    ends[:] = 0
    behind = rows = kv_tokens = requests = 0
    for s in range(len(slots)):
        slot = slots[s]
        depth, width, context = slot.depth, slot.width, slot.context
        if depth == 0:
            continue
        behind += context - slot.drafted_to  # committed text that the drafter has not run
        slot.drafted_to = context
        rows += width
        kv_tokens += context
        requests += 1
        ends[depth, 0] += width
        ends[depth, 1] += context
        ends[depth, 2] += 1
    begun_s, step = replica.work_s, 1
    while requests > 0:
        kind, step_rows = (DRAFT_FIRST, behind) if step == 1 else (DRAFT_NEXT, rows)
        do_pass(r, kind, np.int64(step_rows), np.int64(kv_tokens), np.int64(requests), fleet)
        rows -= ends[step, 0]
        kv_tokens -= ends[step, 1]
        requests -= ends[step, 2]
        step += 1
    return spend_since(replica, begun_s)


@njit(**INNER)
def _walk(r: int, fleet: FleetState) -> int:
    """Find what is accepted and note what was proposed; returns nodes verified, roots included."""
    history, replica, verified = fleet.history, fleet.replicas[r], 0
    for s in range(fleet.slots.shape[1]):
        slot = fleet.slots[r, s]
        if not slot.decoding:
            continue
        kept = deepest = 0
        if slot.depth > 0:
            kept, deepest = look_up(slot, fleet.book, fleet.scratch.memo)
            if replica.has_drift and replica.acceptance != 1.0:
                drift_path(slot, replica.acceptance, replica.drift_key, fleet.book)
            sure = fleet.book.sure[slot.place]
            if sure >= 0:
                slot.draft_confidence = sure
        verified += kept + 1
        slot.verified_nodes += kept + 1
        for d in range(deepest):
            history.proposed[r, s, d] = HISTORY_DECAY * history.proposed[r, s, d] + 1.0
            history.accepted[r, s, d] = HISTORY_DECAY * history.accepted[r, s, d]
            history.since_proposed[r, s, d] = 0
        for d in range(deepest, history.proposed.shape[2]):
            history.since_proposed[r, s, d] += 1
    return verified


@njit(**INNER)
def _charge(r: int, kind: np.int64, verified: int, fleet: FleetState) -> float:
    """Charge a pass over the verified nodes of all that decode; returns the seconds."""
    replica = fleet.replicas[r]
    begun_s = replica.work_s
    if replica.decoding > 0:  # else all who decoded had to give way
        do_pass(r, kind, np.int64(verified), replica.kv_tokens, replica.decoding, fleet)
    return spend_since(replica, begun_s)


@njit(**INNER)
def _commit(r: int, fleet: FleetState) -> None:
    """Emit accepted tokens and the target's own, count those in time, end who is through."""
    book, tally, clock_s = fleet.book, fleet.tally[r], fleet.replicas[r].clock_s
    for s in range(fleet.slots.shape[1]):
        slot = fleet.slots[r, s]
        if not slot.decoding:
            continue
        request = fleet.requests[r, slot.request]
        count = min(slot.path + 1, slot.max_tokens - slot.emitted)
        late_s = clock_s - slot.first_token_s
        valid, emitted, stopped = 0, 0, False
        while emitted < count and not stopped:
            valid += int(late_s <= (slot.emitted + emitted) * slot.tpot_s)
            stopped = ends_output(book.tokens[slot.following + emitted], request)
            emitted += 1
        for d in range(min(slot.path, emitted)):
            fleet.history.accepted[r, s, d] += 1.0
        slot.context += emitted
        slot.emitted += emitted
        slot.valid_tokens += valid
        slot.iterations += 1
        tally.emitted += emitted
        tally.valid += valid
        if stopped or slot.emitted >= slot.max_tokens:
            end_request(r, s, fleet)
