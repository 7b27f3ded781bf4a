"""Which candidates of a drafted tree smaller shapes would have drafted and verified by themselves.

A shape is a depth, a beam width and a number of nodes; its subtree is what `engine.kernels.beam`
would have grown with them, and of that the likeliest nodes. One pass over the candidates in order
of path probability finds the subtrees of all shapes, since a parent comes before its children and
the members of a layer come in the order in which a beam takes them.

A narrow beam is not always contained in a wide one: it may expand a node that the wide beam passed
over. Of the layers below nothing is known then, nor of a subtree with a node that is not verified.
Both are known before the target is asked, so leaving such shapes out does not lean on its answer.
The rule that uses this is `policies.hedge`'s.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def mark_subtrees(
    taking_part: Bools,  # [S]
    size: Ints,  # [S] of the candidates, as all that follow [S, N]
    parent: Ints,
    depth: Ints,
    probability: Floats,
    drafted_depth: Ints,  # [S] draft steps
    drafted_width: Ints,  # [S] of the beam
    deepest: Ints,  # [S] no tree of the request goes deeper
    shapes: Ints,  # [E, 3] depth, place of the width among `widths`, nodes; at most 63 shapes
    widths: Ints,  # [B]
    wanted: Ints,  # [S] bits of the shapes whose subtrees are to be verified
    most: int,  # nodes that a request may verify
    member: Ints,  # [S, N] written: bit e where the subtree of shape e has the candidate
    rank: Ints,  # [S, N] written: 0 for the likeliest
    kept: Bools,  # [S, N] written where it is true
    known: Ints,  # [S] written: bits of the shapes whose subtrees are drafted and kept in whole
    verified: Ints,  # [S] written: nodes kept, and the root
) -> None:
    """Keep the wanted subtrees, and say of which shapes they will tell."""
    slots, most_candidates = parent.shape
    count, beams, layers = len(shapes), len(widths), drafted_depth.max() + 2
    goes_on = np.empty((beams, most_candidates), np.bool_)  # expanded by the narrower beam
    inside = np.empty(beams, np.bool_)
    for s in range(slots):
        known[s] = verified[s] = 0
        if not taking_part[s]:
            continue
        order = np.argsort(-probability[s, : size[s]], kind="mergesort")
        sibling = _sibling_ranks(parent[s, : size[s]])
        in_layer = np.zeros((beams + 1, layers), np.int64)  # the last row is the drafted beam's
        taken = np.zeros(count, np.int64)
        lost_below = np.full(beams, np.iinfo(np.int64).max)
        missing, total = np.int64(0), 0
        for place in range(size[s]):
            i = order[place]
            layer, above = depth[s, i], parent[s, i]
            was_expanded = in_layer[beams, layer] < drafted_width[s]
            in_layer[beams, layer] += 1
            for b in range(beams):
                inside[b] = sibling[i] < widths[b] and (above < 0 or goes_on[b, above])
                goes_on[b, i] = inside[b] and in_layer[b, layer] < widths[b]
                in_layer[b, layer] += inside[b]
                if goes_on[b, i] and not was_expanded:
                    lost_below[b] = min(lost_below[b], layer)
            bits = np.int64(0)
            for e in range(count):
                if inside[shapes[e, 1]] and layer <= shapes[e, 0] and taken[e] < shapes[e, 2]:
                    bits |= np.int64(1) << e
                    taken[e] += 1
            if bits & wanted[s] and total < most:
                kept[s, i] = True
                total += 1
            else:
                missing |= bits
            member[s, i], rank[s, i] = bits, place
        verified[s] = total + 1
        for e in range(count):
            reach, beam = min(shapes[e, 0], deepest[s]), shapes[e, 1]
            was_drafted = widths[beam] <= drafted_width[s] and reach <= drafted_depth[s]
            if was_drafted and lost_below[beam] >= reach and (missing >> e) & 1 == 0:
                known[s] |= np.int64(1) << e


@njit(cache=True)
def _sibling_ranks(parent: Ints) -> Ints:
    """Place of each candidate among its siblings, which stand together, the likeliest first."""
    rank = np.zeros(len(parent), np.int64)
    for i in range(1, len(parent)):
        rank[i] = rank[i - 1] + 1 if parent[i] == parent[i - 1] else 0
    return rank
