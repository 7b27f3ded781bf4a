"""Sequoia's dynamic programme: the best trees of every size where acceptance goes by child rank.

Its recurrence stands in `policies.sequoia`, which also reads trees off these tables.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints


@njit(cache=True)
def best_trees(acceptance: Floats, nodes: int, layers: int) -> tuple[Floats, Ints, Ints]:
    """Tokens, root's children and splits of the best trees of up to `nodes` and `layers`.

    Both count the root. `acceptance` [B] is the chance of a node's b-th child if the node is
    accepted. tokens [layers + 1, nodes + 1] is what such a tree emits, the bonus token included,
    -inf where there is none; children, likewise, how many its root has. rest [layers + 1, B + 1,
    nodes + 1] is for a root with b children the nodes that are left when the b-th child goes with
    all below it. Of equals the smaller number is taken.
    """
    ranks = len(acceptance)
    tokens = np.full((layers + 1, nodes + 1), -np.inf)
    children = np.zeros((layers + 1, nodes + 1), np.int64)
    rest = np.zeros((layers + 1, ranks + 1, nodes + 1), np.int64)
    by_rank = np.empty((ranks + 1, nodes + 1))
    tokens[1:, 1] = 1.0
    for layer in range(2, layers + 1):
        by_rank[:] = -np.inf
        by_rank[0, 1] = 1.0
        for rank in range(1, ranks + 1):
            for m in range(2, nodes + 1):
                for left in range(1, m):
                    below = tokens[layer - 1, m - left]
                    if below > 0.0:  # there is such a tree
                        value = by_rank[rank - 1, left] + acceptance[rank - 1] * below
                        if value > by_rank[rank, m]:
                            by_rank[rank, m] = value
                            rest[layer, rank, m] = left
                if by_rank[rank, m] > tokens[layer, m]:
                    tokens[layer, m] = by_rank[rank, m]
                    children[layer, m] = rank
    return tokens, children, rest
