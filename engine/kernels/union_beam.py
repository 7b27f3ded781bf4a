"""Beam expansion for every width at once: what `engine.kernels.beam.grow` does, 1 to W together.

A narrow beam is no part of a wide one: it goes on from nodes that the wide one has dropped. So each
candidate carries one bit for every width whose beam has scored it, and the union of all widths'
survivors is drafted on once instead of W times. For recording; serving grows one width a slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.beam import BeamState
from engine.protocol import Bools, Floats, Ints, Limits
from engine.state import TreeState

Masks = NDArray[np.uint8]
MOST_WIDTHS = 8  # bits of a mask


class Widths(NamedTuple):
    """By candidate [R, S, N]: bit w - 1 stands for width w."""

    scored: Masks  # widths whose beam has the candidate's parent and wants so many children
    survives: Masks  # widths whose next beam has the candidate


def union_limits(slots: int, max_depth: int, max_width: int) -> Limits:
    """Limits with room for the union of the widths 1 to `max_width` in a tree.

    No more than 1 + 2 + … nodes survive a step, in any of the widths.
    """
    room = max_width * (max_width + 1) // 2
    return Limits(slots, max_depth, room)


def new_widths(replicas: int, limits: Limits) -> Widths:
    """No candidate has any."""
    shape = (replicas, limits.slots, limits.max_candidates)
    return Widths(np.zeros(shape, np.uint8), np.zeros(shape, np.uint8))


@njit(cache=True)
def grow_union(
    step: int,
    alive: Bools,  # [R, S] slots that drafted in this step
    child_token: Ints,  # [R, S, B, W] best children of each beam node, best first
    child_probability: Floats,  # [R, S, B, W] conditional draft probability, 0 for no child
    trees: TreeState,
    beam: BeamState,  # of B places
    widths: Widths,
) -> None:
    """Append the children that some width has scored; the best of each width are the beam.

    Candidates and beam stand in the order in which `grow` has them, so that those of one width are
    in that width's order. Raises ValueError where the beam has too few places.
    """
    replicas, slots = alive.shape
    room, widest = child_token.shape[2:]
    every = (1 << widest) - 1
    old_candidate = np.empty(room, np.int64)
    old_ancestors = np.empty((room, beam.ancestors.shape[3]), np.bool_)
    place_of_parent = np.empty(room * widest, np.int64)
    left = np.empty(widest, np.int64)
    for r in range(replicas):
        for s in range(slots):
            if not alive[r, s]:
                beam.size[r, s] = 0
                continue
            old_candidate[:] = beam.candidate[r, s]
            old_ancestors[:] = beam.ancestors[r, s]
            if step == 1:
                trees.size[r, s] = 0
                old_ancestors[:] = False
            first = trees.size[r, s]
            n = first
            for p in range(1 if step == 1 else beam.size[r, s]):
                above, having = 1.0, every
                if step > 1:
                    above = trees.probability[r, s, old_candidate[p]]
                    having = np.int64(widths.survives[r, s, old_candidate[p]])
                for c in range(widest):
                    wanting = having >> c << c  # a beam of width w takes w children
                    if wanting == 0 or not child_probability[r, s, p, c] > 0:
                        break
                    trees.parent[r, s, n] = -1 if step == 1 else old_candidate[p]
                    trees.depth[r, s, n] = step
                    trees.token[r, s, n] = child_token[r, s, p, c]
                    trees.probability[r, s, n] = above * child_probability[r, s, p, c]
                    widths.scored[r, s, n] = wanting
                    place_of_parent[n - first] = p
                    n += 1
            trees.size[r, s] = n
            for w in range(widest):
                left[w] = w + 1
            size = 0
            # A stable sort: of equals the one drafted first survives, as in `grow`.
            for k in np.argsort(-trees.probability[r, s, first:n], kind="mergesort"):
                i = first + k
                surviving = 0
                for w in range(widest):
                    if widths.scored[r, s, i] >> w & 1 and left[w] > 0:
                        left[w] -= 1
                        surviving |= 1 << w
                widths.survives[r, s, i] = surviving
                if surviving == 0:
                    continue
                if size == room:
                    raise ValueError("more nodes survive than the beam has places")
                beam.candidate[r, s, size] = i
                row = place_of_parent[k]
                beam.parent_row[r, s, size] = row
                beam.ancestors[r, s, size] = old_ancestors[row]
                beam.ancestors[r, s, size, (step - 1) * room + size] = True
                size += 1
            beam.size[r, s] = size
