"""After the walk: log probabilities, stop strings, tokens into the ledger, and the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.kernels.commit import commit_tokens, record_acceptance
from engine.kernels.walk import accepted_within
from engine.protocol import NODE_TIERS, Bools, Ints, Outcome
from engine.request import Status
from engine.stopping import cut_walk

if TYPE_CHECKING:
    from engine.loop import Engine


def read_tokens(engine: Engine, decoding: Bools) -> Bools:
    """What is asked of emitted tokens: log probabilities, and whether a stop string ends them.

    Cuts the walks of the slots [S] that it returns.
    """
    stopped = np.zeros(decoding.shape[1], np.bool_)
    trees = engine.trees
    for slot, request in engine.ledger.running.items():
        if not decoding[0, slot]:
            continue
        if request.stop_strings:
            fresh = trees.new_tokens[0, slot, : trees.accepted_length[0, slot]].tolist()
            count = engine.stops.tokens_until_stop(request, fresh)
            if count is not None:
                stopped[slot] = True
                cut_walk(slot, count, trees, engine.choices)
        if request.sampling.logprobs:
            request.logprobs += engine.backend.emitted_logprobs(slot, trees, engine.choices)
    return stopped


def commit(engine: Engine, decoding: Bools, slo_class: Ints, stopped: Bools) -> Outcome:
    """Write tokens and ledger; the outcome without its times."""
    slots, trees, limits = engine.slots, engine.trees, engine.limits
    shape = (1, limits.slots)
    proposed = np.zeros((*shape, limits.max_depth), np.bool_)
    accepted = np.zeros_like(proposed)
    valid = np.zeros(shape, np.int64)
    done = np.zeros(shape, np.bool_)
    within = np.zeros((*shape, limits.max_depth + 1, len(NODE_TIERS)), np.int64)
    record_acceptance(decoding, slots, trees, proposed, accepted)
    accepted_within(decoding, np.array(NODE_TIERS), trees, within)
    commit_tokens(decoding, np.array([engine.clock_s]), slots, trees, valid, done)
    done[0] |= stopped
    verified = (trees.kept[0].sum(1) + 1) * decoding[0]
    drafted = trees.scored[0] * decoding[0]
    for slot in np.flatnonzero(done[0]).tolist():
        engine.end(slot, Status.FINISHED)
    return Outcome(
        ran=decoding[0],
        slo_class=slo_class,
        accepted_length=trees.accepted_length[0].copy(),
        drafted=drafted,
        verified=verified,
        wasted=(drafted - trees.path_length[0]) * decoding[0],
        let_through=trees.let_through[0].copy(),
        given_up=trees.given_up[0].copy(),
        proposed=proposed[0],
        accepted=accepted[0],
        accepted_within=within[0],
        finished=done[0],
        valid_tokens=valid[0],
        start_s=engine.start_s,
        prefill_s=0.0,
        draft_s=0.0,
        select_s=0.0,
        verify_s=0.0,
        controller_s=0.0,
        other_s=0.0,
        energy_joules=0.0,
        memory_bytes=engine.backend.memory_bytes(),
        clipped=0,
        shrunk=0,
    )
