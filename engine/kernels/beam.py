"""Beam expansion of draft trees (EAGLE-2): score the beam's children, keep the best.

Every scored child becomes a candidate; the `width` best of them are the next step's beam.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints, Limits
from engine.state import TreeState


class BeamState(NamedTuple):
    """The nodes that the drafter expands next [R, S, W], W the widest beam."""

    size: Ints  # [R, S] nodes in the beam
    width: Ints  # [R, S] nodes that it may have, 0 where the slot drafts no further
    candidate: Ints  # [R, S, W] their candidate index
    parent_row: Ints  # [R, S, W] place of the parent in the previous beam
    ancestors: Bools  # [R, S, W, D · W] draft rows that a node sees: (step - 1) · W + place


def new_beam(replicas: int, limits: Limits) -> BeamState:
    """An empty beam."""
    shape = (replicas, limits.slots, limits.max_width)
    return BeamState(
        size=np.zeros(shape[:2], np.int64),
        width=np.zeros(shape[:2], np.int64),
        candidate=np.zeros(shape, np.int64),
        parent_row=np.zeros(shape, np.int64),
        ancestors=np.zeros((*shape, limits.max_depth * limits.max_width), np.bool_),
    )


@njit(cache=True)
def grow(
    step: int,
    alive: Bools,  # [R, S] slots that drafted in this step
    width: Ints,  # [R, S]
    child_token: Ints,  # [R, S, W, W] best children of each beam node, best first
    child_probability: Floats,  # [R, S, W, W] conditional draft probability, 0 for no child
    trees: TreeState,
    beam: BeamState,
) -> None:
    """Append the scored children as candidates and make the best of them the beam.

    At step 1 the only parent is the root, in place 0. A node may have fewer children than `width`.
    A slot that is not alive gets an empty beam.
    """
    replicas, slots = alive.shape
    widest = beam.candidate.shape[2]
    old_candidate = np.empty(widest, np.int64)
    old_ancestors = np.empty((widest, beam.ancestors.shape[3]), np.bool_)
    place_of_parent = np.empty(widest * widest, np.int64)
    for r in range(replicas):
        for s in range(slots):
            beam.width[r, s] = width[r, s] if alive[r, s] else 0
            if not alive[r, s]:
                beam.size[r, s] = 0
                continue
            parents = 1 if step == 1 else beam.size[r, s]
            old_candidate[:] = beam.candidate[r, s]
            old_ancestors[:] = beam.ancestors[r, s]
            if step == 1:
                trees.size[r, s] = 0
                old_ancestors[:] = False
            first = trees.size[r, s]
            n = first
            for p in range(parents):
                above = 1.0 if step == 1 else trees.probability[r, s, old_candidate[p]]
                for c in range(width[r, s]):
                    if not child_probability[r, s, p, c] > 0:  # a NaN is no child either
                        break  # best first, so the drafter proposes no more
                    trees.parent[r, s, n] = -1 if step == 1 else old_candidate[p]
                    trees.depth[r, s, n] = step
                    trees.token[r, s, n] = child_token[r, s, p, c]
                    trees.probability[r, s, n] = above * child_probability[r, s, p, c]
                    place_of_parent[n - first] = p
                    n += 1
            trees.size[r, s] = trees.scored[r, s] = n
            size = min(width[r, s], n - first)
            for place in range(size):
                best = -1
                for i in range(first, n):
                    taken = False
                    for q in range(place):
                        taken = taken or beam.candidate[r, s, q] == i
                    if not taken and (
                        best < 0 or trees.probability[r, s, i] > trees.probability[r, s, best]
                    ):
                        best = i
                beam.candidate[r, s, place] = best
                row = place_of_parent[best - first]
                beam.parent_row[r, s, place] = row
                for k in range(old_ancestors.shape[1]):
                    beam.ancestors[r, s, place, k] = step > 1 and old_ancestors[row, k]
                beam.ancestors[r, s, place, (step - 1) * widest + place] = True
            beam.size[r, s] = size
