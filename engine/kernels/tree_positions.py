"""Where drafted candidates stand in a tree of positions by child rank, for `policies.sequoia`."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Ints


@njit(cache=True)
def positions(size: Ints, parent: Ints, child: Ints) -> Ints:
    """Position in the tree of the first `size` [S] candidates [S, N]; -1 for nowhere.

    `parent` [S, N] is that of `engine.protocol.Candidates`. `child` [P, B] is the position of each
    position's children by rank, -1 for none; the root, which has no candidate, stands at 0.
    Children of a candidate stand together, the likeliest first, so ranks count from where the
    parent changes.
    """
    slots, most = parent.shape
    position = np.full((slots, most), -1)
    for s in range(slots):
        rank = 0
        for i in range(size[s]):
            above = parent[s, i]
            rank = rank + 1 if i > 0 and above == parent[s, i - 1] else 0
            at = 0 if above < 0 else position[s, above]
            if at >= 0 and rank < child.shape[1]:
                position[s, i] = child[at, rank]
    return position
