"""Target-only verification: walk the tree along the tokens that the target itself chose.

At the root take the target's token x; if a kept child carries x go there and repeat, else emit x as
the bonus token and stop. Lossless for any tree (ALGORITHMS.md section 3). With a margin below 1
(AdaptiveSpec, lossy) the best child within the margin is taken where x is no child. How x is
chosen, and how far a child misses it, is the sampler's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints
from engine.state import SlotState, TreeState

if TYPE_CHECKING:
    from engine.backends.protocol import Choices


@njit(cache=True)
def walk(
    decoding: Bools,
    choices: Choices,
    margin: Floats,  # [R, S]
    slots: SlotState,
    trees: TreeState,
) -> None:
    """Fill path, new_tokens, accepted_length, let_through and given_up of every decoding slot.

    What lies behind a stop token or the token limit is cut off. A slot that failed emits nothing.
    """
    replicas, n_slots, _ = trees.parent.shape
    log_ratio = choices.log_ratio
    missed = np.zeros(trees.path.shape[2])  # by how much, for each accepted token; 0 when exact
    loose = np.zeros(trees.path.shape[2], np.bool_)
    for r in range(replicas):
        for s in range(n_slots):
            trees.path_length[r, s] = 0
            trees.accepted_length[r, s] = 0
            trees.let_through[r, s] = 0
            trees.given_up[r, s] = 0.0
            if not decoding[r, s] or choices.failed[r, s]:
                continue
            node = -1
            wanted = choices.root_token[r, s]
            length = 0
            while True:
                best = -1
                exact = False
                for i in range(node + 1, trees.size[r, s]):
                    if not trees.kept[r, s, i] or trees.parent[r, s, i] != node or exact:
                        continue
                    if trees.token[r, s, i] == wanted:
                        best, exact = i, True
                    elif (
                        margin[r, s] < 1.0
                        and log_ratio[r, s, i] >= np.log(margin[r, s])
                        and (best < 0 or log_ratio[r, s, i] > log_ratio[r, s, best])
                    ):
                        best = i
                if best < 0:
                    break
                loose[length] = not exact
                missed[length] = 0.0 if exact else -log_ratio[r, s, best]
                trees.path[r, s, length] = best
                trees.new_tokens[r, s, length] = trees.token[r, s, best]
                length += 1
                node = best
                wanted = choices.node_token[r, s, best]
            trees.new_tokens[r, s, length] = wanted
            emitted = min(length + 1, slots.max_tokens[r, s] - slots.emitted[r, s])
            for i in range(emitted):
                if is_stop(trees.new_tokens[r, s, i], slots.stop[r, s]):
                    emitted = i + 1
                    break
            trees.accepted_length[r, s] = emitted
            trees.path_length[r, s] = min(length, emitted)
            for i in range(trees.path_length[r, s]):
                trees.let_through[r, s] += loose[i]
                trees.given_up[r, s] += missed[i]


@njit(cache=True)
def is_stop(token: int, stops: Ints) -> bool:
    """Whether the token ends the output."""
    for stop in stops:  # noqa: SIM110 - Numba compiles no generator expressions
        if stop >= 0 and token == stop:
            return True
    return False


@njit(cache=True)
def accepted_within(decoding: Bools, tiers: Ints, trees: TreeState, result: Ints) -> None:
    """What smaller trees would have emitted: result [R, S, D + 1, len(tiers)].

    Entry (d, t) is the accepted length had only nodes of depth ≤ d among the tiers[t] likeliest
    candidates been kept. Exact for subtrees of the verified tree.
    """
    replicas, n_slots, depths, n_tiers = result.shape
    for r in range(replicas):
        for s in range(n_slots):
            for d in range(depths):
                for t in range(n_tiers):
                    length = 0
                    if decoding[r, s]:
                        length = 1
                        for i in range(min(d, trees.path_length[r, s])):
                            if trees.rank[r, s, trees.path[r, s, i]] < tiers[t]:
                                length += 1
                            else:
                                break
                    result[r, s, d, t] = min(length, trees.accepted_length[r, s])
