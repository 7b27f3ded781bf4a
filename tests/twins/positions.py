"""Twin of `engine.kernels.tree_positions`: layer by layer, all slots at once."""

from __future__ import annotations

import numpy as np

from engine.protocol import Bools, Candidates, Ints
from policies.sequoia import Tree


def positions(candidates: Candidates, real: Bools, tree: Tree) -> Ints:
    """Where in the tree the first candidates [S, N'] stand that are `real`; -1 for nowhere."""
    last = real.shape[1]
    parent, depth = candidates.parent[:, :last], candidates.depth[:, :last]
    # Children stand together, the likeliest first: ranks count from where the parent changes.
    index = np.arange(last)
    fresh = np.ones(parent.shape, np.bool_)
    fresh[:, 1:] = parent[:, 1:] != parent[:, :-1]
    rank = index - np.maximum.accumulate(np.where(fresh, index, 0), axis=1)
    known = real & (rank < tree.child.shape[1])
    position = np.full((len(parent), last + 1), -1)
    position[:, -1] = 0  # the root, which is what parent -1 comes to
    for layer in range(1, tree.depth + 1):
        slot, node = np.nonzero(known & (depth == layer))
        above = position[slot, parent[slot, node]]
        position[slot, node] = tree.child[above, rank[slot, node]]
    return position[:, :last]
