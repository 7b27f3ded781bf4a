"""What a recording keeps of a drafted union of widths: enough for every plan's tree, and no more.

A plan's tree is the likeliest nodes of its width up to its depth, so a place keeps those of every
(depth, width), and beside them whatever survives in a beam. They are ranked as
`engine.kernels.select` ranks candidates. Live arrays of one replica.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.union_beam import Widths
from engine.protocol import Bools, Floats, Ints
from engine.replay.recording import ROOT
from engine.state import TreeState

MOST = ROOT  # nodes of a place: a parent's index is below what stands for the root


class KeptNodes(NamedTuple):
    """Nodes of some places, as `Recording` has them; entries from size[s] on mean nothing."""

    size: Ints  # [S]
    parent: NDArray[np.uint8]  # [S, MOST]
    depth: NDArray[np.uint8]  # [S, MOST]
    widths: NDArray[np.uint8]  # [S, MOST]
    token: NDArray[np.int32]  # [S, MOST]
    probability: NDArray[np.float32]  # [S, MOST]
    log_ratio: NDArray[np.float32]  # [S, MOST]


def new_kept(slots: int) -> KeptNodes:
    """Room for the nodes of `slots` places."""
    dtypes = np.uint8, np.uint8, np.uint8, np.int32, np.float32, np.float32
    return KeptNodes(np.zeros(slots, np.int64), *(np.zeros((slots, MOST), d) for d in dtypes))


@njit(cache=True)
def compare_with_text(
    place: Ints,  # [n] output token that is the root, by slot from 0 on
    output: Ints,  # [T]
    levels: Any,  # [T - 1, V] the target's logits behind output token i
    floor: Floats,  # [T - 1] lowest level that a margin may let through
    trees: TreeState,
    on_path: Bools,  # [S, N], written: the node and all above it are the text's own tokens
    log_ratio: Floats,  # [S, N], written: target's log p over that of the text's token, or -inf
) -> None:
    """Find the text in the trees of n slots, and what the target says of its nodes' children.

    Log ratios are as the engine's margin rule has them (`engine.sampling.draw.log_ratios`, greedy).
    """
    for s in range(len(place)):
        for i in range(trees.size[0, s]):
            parent, token = trees.parent[0, s, i], trees.token[0, s, i]
            at = place[s] + trees.depth[0, s, i]  # output token that the node is a guess of
            on_path[s, i] = False
            log_ratio[s, i] = -np.inf
            if at < len(output) and (parent < 0 or on_path[s, parent]):
                on_path[s, i] = token == output[at]
                if levels[at - 1, token] >= floor[at - 1]:
                    log_ratio[s, i] = levels[at - 1, token] - levels[at - 1, output[at]]


@njit(cache=True)
def keep_nodes(
    count: int,  # slots, from 0 on
    max_depth: int,
    max_width: int,
    max_nodes: int,  # of one (depth, width)
    trees: TreeState,
    widths: Widths,
    on_path: Bools,  # [S, N]
    log_ratio: Floats,  # [S, N]
    kept: KeptNodes,  # written
) -> int:
    """Write the nodes to keep of every slot, likeliest first; returns how many found no room.

    Where more than MOST are wanted, some are dropped: first those that stand in no beam, the least
    likely before the others, then those in beams likewise. The text's own tokens are never dropped.
    """
    lost = 0
    for s in range(count):
        size = trees.size[0, s]
        # Candidates stand in order of depth, then as drafted: a stable sort breaks ties as stated.
        order = np.argsort(-trees.probability[0, s, :size], kind="mergesort")
        wanted = widths.survives[0, s, :size] > 0
        for w in range(max_width):
            for depth in range(1, max_depth + 1):
                found = 0
                for i in order:
                    if found == max_nodes:
                        break
                    if trees.depth[0, s, i] <= depth and widths.scored[0, s, i] >> w & 1:
                        wanted[i] = True
                        found += 1
        # More than MOST nodes do not fit. Nodes in no beam go first, the least likely before the
        # others; if that is not enough, nodes of beams go too. The text's own always stay. What is
        # left is a tree: a node in no beam has no children, and a child is no likelier than its
        # parent, so it goes before it.
        excess = wanted.sum() - MOST
        for sparing in (True, False):
            for i in order[::-1]:
                spared = on_path[s, i] or (sparing and widths.survives[0, s, i] > 0)
                if excess > 0 and wanted[i] and not spared:
                    wanted[i] = False
                    excess -= 1
                    lost += 1
        place = np.empty(size, np.int64)
        n = 0
        for i in order:
            if wanted[i]:
                parent = trees.parent[0, s, i]
                kept.parent[s, n] = ROOT if parent < 0 else place[parent]
                kept.depth[s, n] = trees.depth[0, s, i]
                kept.widths[s, n] = widths.scored[0, s, i]
                kept.token[s, n] = trees.token[0, s, i]
                kept.probability[s, n] = trees.probability[0, s, i]
                kept.log_ratio[s, n] = log_ratio[s, i]
                place[i] = n
                n += 1
        kept.size[s] = n
    return lost
