"""Random children by what stands above them, and unions of widths grown from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from engine.backends.protocol import Children
from engine.kernels.beam import BeamState, new_beam
from engine.kernels.union_beam import Widths, grow_union, new_widths, union_limits
from engine.state import TreeState, new_trees
from tests.twins.grow_union import Chain

VOCAB = 12


class UnionCase(NamedTuple):
    """The shape of a union, and what its children are drawn from."""

    seed: int
    max_depth: int
    max_width: int
    tied: bool  # few distinct probabilities, so that ties are common


@st.composite
def union_cases(draw: st.DrawFn) -> UnionCase:
    """Unions small enough for their twins."""
    seed = draw(st.integers(0, 2**32 - 1))
    return UnionCase(seed, draw(st.integers(1, 4)), draw(st.integers(1, 8)), draw(st.booleans()))


def children_of(case: UnionCase, slot: int, above: Chain) -> tuple[Sequence[int], Sequence[float]]:
    """Different tokens and their probabilities, best first; the same whoever asks."""
    rng = np.random.default_rng([case.seed, slot, len(above), *above])
    if case.tied:
        chances = rng.choice([0.0, 0.1, 0.3, 0.3, 0.6, 1.0], case.max_width)
    else:
        chances = rng.dirichlet(np.full(VOCAB, 0.3))[: case.max_width]
    return rng.permutation(VOCAB)[: case.max_width].tolist(), (-np.sort(-chances)).tolist()


class GrownUnion(NamedTuple):
    """What the kernel made of the children of every slot."""

    trees: TreeState
    beam: BeamState
    widths: Widths
    beams: list[list[list[int]]]  # by step and slot, the candidates in the beam


def chain_of(trees: TreeState, slot: int, i: int) -> Chain:
    """Tokens of a slot's candidate and of all above it."""
    parent = int(trees.parent[0, slot, i])
    return (*(() if parent < 0 else chain_of(trees, slot, parent)), int(trees.token[0, slot, i]))


def grow_unions(case: UnionCase, slots: int = 2) -> GrownUnion:
    """Grow `slots` unions side by side."""
    limits = union_limits(slots, case.max_depth, case.max_width)
    trees, beam, widths = new_trees(1, limits), new_beam(1, limits), new_widths(1, limits)
    # Arrays are used again and again: what the last tree left must not matter.
    beam.ancestors[:] = True
    widths.survives[:] = 255
    widths.scored[:] = 255
    shape = (1, slots, limits.max_width, case.max_width)
    children = Children(np.zeros(shape, np.int64), np.zeros(shape))
    alive = np.ones((1, slots), np.bool_)
    beams: list[list[list[int]]] = []
    for step in range(1, case.max_depth + 1):
        for slot in range(slots):
            parents: list[Chain] = [()]
            if step > 1:
                parents = [chain_of(trees, slot, i) for i in beams[-1][slot]]
            for place, above in enumerate(parents):
                tokens, chances = children_of(case, slot, above)
                children.token[0, slot, place] = tokens
                children.probability[0, slot, place] = chances
        grow_union(step, alive, *children, trees, beam, widths)
        beams.append([beam.candidate[0, s, : beam.size[0, s]].tolist() for s in range(slots)])
    return GrownUnion(trees, beam, widths, beams)
