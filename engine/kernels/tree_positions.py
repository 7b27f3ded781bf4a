"""Which drafted candidates stand in a tree of positions by child rank, for `policies.sequoia`."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Ints


@njit(cache=True)
def in_tree(taking_part: Bools, size: Ints, parent: Ints, child: Ints) -> Bools:
    """Which of the first `size` [S] candidates [S, N] have a position; none of idle slots.

    `parent` [S, N] is that of `engine.protocol.Candidates`. `child` [P, B] is the position of each
    position's children by rank, -1 for none; the root, which has no candidate, stands at 0.
    Children of a candidate stand together, the likeliest first, so ranks count from where the
    parent changes.
    """
    slots, most = parent.shape
    found = np.zeros((slots, most), np.bool_)
    position = np.empty(most, np.int64)  # of one slot's candidates
    for s in range(slots):
        rank = 0
        for i in range(size[s] if taking_part[s] else 0):
            above = parent[s, i]
            rank = rank + 1 if i > 0 and above == parent[s, i - 1] else 0
            at = 0 if above < 0 else position[above]
            position[i] = child[at, rank] if at >= 0 and rank < child.shape[1] else -1
            found[s, i] = position[i] >= 0
    return found
