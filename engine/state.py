"""The engine's state: struct-of-arrays over R replicas and S slots.

Live serving has one replica; replay steps many in one call. Everything that a kernel touches is
here, and nothing else: strings, sampling and cancellation stay in `Request` objects beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.protocol import Bools, Floats, Ints, Limits

MAX_STOPS = 4


class SlotState(NamedTuple):
    """Per-slot arrays [R, S]; a slot that is not `active` holds stale values."""

    active: Bools  # holds a request
    decoding: Bools  # the prompt is through and the first token emitted
    request: Ints  # id of the request
    slo_class: Ints
    prompt_tokens: Ints
    to_prefill: Ints  # tokens to process before it decodes: the prompt, and what it had emitted
    prefilled: Ints  # of these, processed
    context: Ints  # tokens whose keys and values are committed
    emitted: Ints  # tokens emitted, the first included
    max_tokens: Ints
    last_token: Ints  # the root of the next tree: emitted, not yet in the cache
    arrival_s: Floats
    admitted_s: Floats
    entered_s: Floats  # last admission: later than the first where it had to give its slot up
    first_token_s: Floats
    tpot_objective_s: Floats  # what controllers steer by: a looser class's when degraded
    promised_tpot_s: Floats  # its own class's, by which tokens are valid
    ttft_objective_s: Floats
    valid_tokens: Ints
    iterations: Ints
    verified_nodes: Ints
    draft_confidence: Floats
    draft_entropy: Floats
    proposed: Floats  # [R, S, D] decayed counts by position
    accepted: Floats  # [R, S, D]
    since_proposed: Ints  # [R, S, D]
    stop: Ints  # [R, S, MAX_STOPS] token ids that end the output, -1 for none
    text: Ints  # [R, S, capacity] prompt and output


class TreeState(NamedTuple):
    """Scratch of one iteration [R, S, …]: candidates, what is kept, what is accepted."""

    size: Ints  # [R, S] candidates
    scored: Ints  # [R, S] nodes that the drafter scored: the candidates, on replay more than those
    parent: Ints  # [R, S, N]
    depth: Ints  # [R, S, N]
    token: Ints  # [R, S, N]
    probability: Floats  # [R, S, N]
    kept: Bools  # [R, S, N]
    rank: Ints  # [R, S, N] place among the slot's candidates by path probability
    path: Ints  # [R, S, D] accepted candidates from the root on
    path_length: Ints  # [R, S] accepted drafts
    new_tokens: Ints  # [R, S, D + 1] tokens to emit, bonus included
    accepted_length: Ints  # [R, S]
    let_through: Ints  # [R, S]
    given_up: Floats  # [R, S] log-ratio that the tokens let through fell short by, summed


def new_slots(replicas: int, limits: Limits, capacity: int) -> SlotState:
    """Empty slots."""
    shape = (replicas, limits.slots)
    by_position = (*shape, limits.max_depth)
    fields: dict[str, np.ndarray] = {}
    for name in SlotState._fields:
        if name in ("active", "decoding"):
            fields[name] = np.zeros(shape, np.bool_)
        elif name in ("proposed", "accepted"):
            fields[name] = np.zeros(by_position)
        elif name == "since_proposed":
            fields[name] = np.zeros(by_position, np.int64)
        elif name == "stop":
            fields[name] = np.full((*shape, MAX_STOPS), -1, np.int64)
        elif name == "text":
            fields[name] = np.zeros((*shape, capacity), np.int64)
        elif name.endswith("_s") or name in ("draft_confidence", "draft_entropy"):
            fields[name] = np.zeros(shape)
        else:
            fields[name] = np.zeros(shape, np.int64)
    return SlotState(**fields)


def new_trees(replicas: int, limits: Limits) -> TreeState:
    """Empty scratch."""
    slots = (replicas, limits.slots)
    nodes = (*slots, limits.max_candidates)
    path = (*slots, limits.max_depth)
    return TreeState(
        size=np.zeros(slots, np.int64),
        scored=np.zeros(slots, np.int64),
        parent=np.full(nodes, -1, np.int64),
        depth=np.zeros(nodes, np.int64),
        token=np.zeros(nodes, np.int64),
        probability=np.zeros(nodes),
        kept=np.zeros(nodes, np.bool_),
        rank=np.zeros(nodes, np.int64),
        path=np.zeros(path, np.int64),
        path_length=np.zeros(slots, np.int64),
        new_tokens=np.zeros((*slots, limits.max_depth + 1), np.int64),
        accepted_length=np.zeros(slots, np.int64),
        let_through=np.zeros(slots, np.int64),
        given_up=np.zeros(slots),
    )
