"""Where the text is known beforehand: what the target says, and what a drafter proposes.

The root of a slot's tree is the text's token at `context`, a node of depth j stands for the token
at context + j. What is forced and why is `engine.backends.forced` and `engine.drafters.steered`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from engine.kernels.beam import BeamState
from engine.protocol import Bools, Floats, Ints
from engine.state import SlotState, TreeState

if TYPE_CHECKING:
    from engine.backends.protocol import Choices

OFF_PATH = -2  # no drafted node stands for the text any more; -1 is the root


@njit(cache=True)
def force_choices(
    decoding: Bools,  # [R, S]
    row: Ints,  # [R, S] of the slot's text, -1 for none
    tokens: Ints,  # [Q, L]
    length: Ints,  # [Q]
    slots: SlotState,
    trees: TreeState,
    choices: Choices,
) -> None:
    """Let the target choose the text's token after the root and after every kept node.

    Behind the end of a text the target's own choices stand. No margin lets other tokens through.
    """
    replicas, n_slots = decoding.shape
    for r in range(replicas):
        for s in range(n_slots):
            text = row[r, s]
            if not decoding[r, s] or text < 0:
                continue
            after = slots.context[r, s] + 1
            if after < length[text]:
                choices.root_token[r, s] = tokens[text, after]
            for i in range(trees.size[r, s]):
                if not trees.kept[r, s, i]:
                    continue
                choices.log_ratio[r, s, i] = -np.inf
                behind = after + trees.depth[r, s, i]
                if behind < length[text]:
                    choices.node_token[r, s, i] = tokens[text, behind]


@njit(cache=True)
def steer_children(
    depth: int,  # of the children
    alive: Bools,  # [R, S] slots whose children were scored
    rank: Ints,  # [R, S] which child the right token shall be, 0 the best; -1: none
    row: Ints,  # [R, S] of the slot's text, -1 for none
    tokens: Ints,  # [Q, L]
    length: Ints,  # [Q]
    vocab: int,
    slots: SlotState,
    trees: TreeState,
    beam: BeamState,
    on_path: Ints,  # [R, S] the candidate of depth - 2 that stands for the text; moves one on
    child_token: Ints,  # [R, S, W, W]
    child_probability: Floats,  # [R, S, W, W]
) -> None:
    """Among the children of the node that stands for the text, put the right one at its rank.

    Probabilities stay where they are, so the order of the siblings holds. A node with fewer
    children takes it as its last; with rank -1 the right token gives way to another.
    """
    replicas, n_slots = alive.shape
    for r in range(replicas):
        for s in range(n_slots):
            text = row[r, s]
            if not alive[r, s] or text < 0:
                continue
            at = slots.context[r, s] + depth  # where the children stand in the text
            place = 0
            if depth == 1:
                on_path[r, s] = -1
            elif at > length[text]:
                on_path[r, s] = OFF_PATH
                continue
            else:
                place = _standing_for(tokens[text, at - 1], on_path[r, s], r, s, trees, beam)
                on_path[r, s] = beam.candidate[r, s, place] if place >= 0 else OFF_PATH
            if place >= 0 and at < length[text]:
                siblings, chances = child_token[r, s, place], child_probability[r, s, place]
                _put(tokens[text, at], rank[r, s], vocab, siblings, chances)


@njit(cache=True)
def _standing_for(
    token: int, parent: int, r: int, s: int, trees: TreeState, beam: BeamState
) -> int:
    """Place in the slot's beam of the child of `parent` with that token, -1 where it is not."""
    for place in range(beam.size[r, s]):
        node = beam.candidate[r, s, place]
        if trees.parent[r, s, node] == parent and trees.token[r, s, node] == token:
            return place
    return -1


@njit(cache=True)
def _put(right: int, rank: int, vocab: int, siblings: Ints, chances: Floats) -> None:
    """The token `right` at `rank` among siblings [W], or nowhere; all stay different."""
    count, found = 0, -1
    while count < len(siblings) and chances[count] > 0:
        if siblings[count] == right:
            found = count
        count += 1
    if count == 0:
        return
    if rank >= 0:
        to = min(rank, count - 1)
        if found >= 0:
            siblings[found] = siblings[to]
        siblings[to] = right
        return
    if found < 0:
        return
    other, taken = right, True
    while taken:
        other = (other + 1) % vocab
        taken = False
        for i in range(count):
            taken = taken or siblings[i] == other
    siblings[found] = other
