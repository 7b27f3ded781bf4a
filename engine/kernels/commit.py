"""Write an iteration's tokens into the slots and keep the ledger of each request."""

from __future__ import annotations

from numba import njit

from engine.kernels.walk import is_stop
from engine.protocol import Bools, Floats, Ints
from engine.state import SlotState, TreeState

HISTORY_DECAY = 0.9  # weight of the past in the acceptance history, per proposal of a position


@njit(cache=True)
def commit_tokens(
    decoding: Bools, clock_s: Floats, slots: SlotState, trees: TreeState, valid: Ints, done: Bools
) -> None:
    """Append new tokens, count the valid ones [R, S] and mark finished requests [R, S].

    Token i (0 is the first) is valid when emitted by first_token_s + i · objective, its own class's
    objective also where the engine steers by a looser one.
    """
    replicas, n_slots = decoding.shape
    for r in range(replicas):
        for s in range(n_slots):
            valid[r, s] = 0
            done[r, s] = False
            if not decoding[r, s]:
                continue
            n = trees.accepted_length[r, s]
            end = slots.prompt_tokens[r, s] + slots.emitted[r, s]
            for i in range(n):
                slots.text[r, s, end + i] = trees.new_tokens[r, s, i]
                late = clock_s[r] - slots.first_token_s[r, s]
                valid[r, s] += late <= (slots.emitted[r, s] + i) * slots.promised_tpot_s[r, s]
            last = trees.new_tokens[r, s, n - 1]
            slots.last_token[r, s] = last
            slots.context[r, s] += n
            slots.emitted[r, s] += n
            slots.valid_tokens[r, s] += valid[r, s]
            slots.iterations[r, s] += 1
            full = slots.emitted[r, s] >= slots.max_tokens[r, s]
            done[r, s] = full or is_stop(last, slots.stop[r, s])


@njit(cache=True)
def record_acceptance(
    decoding: Bools, slots: SlotState, trees: TreeState, proposed: Bools, accepted: Bools
) -> None:
    """Note by position what was offered and what was accepted, this time and in the history.

    A position that was not offered says nothing: its history stays, only its age grows.
    """
    replicas, n_slots, depths = proposed.shape
    for r in range(replicas):
        for s in range(n_slots):
            for d in range(depths):
                proposed[r, s, d] = False
                accepted[r, s, d] = False
            if not decoding[r, s]:
                continue
            for i in range(trees.size[r, s]):
                if trees.kept[r, s, i]:
                    proposed[r, s, trees.depth[r, s, i] - 1] = True
                    slots.verified_nodes[r, s] += 1
            slots.verified_nodes[r, s] += 1  # the root
            if trees.size[r, s] > 0:
                best = 0.0
                for i in range(trees.size[r, s]):
                    if trees.depth[r, s, i] == 1:
                        best = max(best, trees.probability[r, s, i])
                slots.draft_confidence[r, s] = best
            for d in range(depths):
                slots.since_proposed[r, s, d] += 1
                if proposed[r, s, d]:
                    accepted[r, s, d] = d < trees.path_length[r, s]
                    old_p, old_a = slots.proposed[r, s, d], slots.accepted[r, s, d]
                    slots.proposed[r, s, d] = HISTORY_DECAY * old_p + 1.0
                    slots.accepted[r, s, d] = HISTORY_DECAY * old_a + accepted[r, s, d]
                    slots.since_proposed[r, s, d] = 0
