"""Beam growth equals its twin, and replicas do not mix."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from engine.kernels.beam import BeamState, grow, new_beam
from engine.protocol import Bools, Floats, Ints
from engine.state import TreeState, new_trees
from tests.random_trees import Case, assert_same, cases, random_flags, replica
from tests.twins.grow import Node, Place
from tests.twins.grow import grow as grow_twin

Step = tuple[Bools, Ints, Floats]


def draws(case: Case) -> tuple[Ints, list[Step]]:
    """Widths, and for every step who drafts and what the drafter answers."""
    shape = (case.replicas, case.limits.slots)
    widest = case.limits.max_width
    alive = np.ones(shape, np.bool_)
    steps = []
    for _ in range(case.limits.max_depth):
        alive = alive & random_flags(case)
        tokens = case.rng.integers(0, 9, (*shape, widest, widest))
        chances = case.rng.choice([0.0, 0.1, 0.3, 0.3, 0.6], (*shape, widest, widest))
        steps.append((alive, tokens, -np.sort(-chances)))
    return case.rng.integers(1, widest + 1, shape), steps


def grown(trees: TreeState, beam: BeamState, r: int, s: int) -> tuple[list[Node], list[Place]]:
    """What the arrays of one slot say, as the twin says it."""
    nodes = [
        Node(
            int(trees.parent[r, s, i]),
            int(trees.depth[r, s, i]),
            int(trees.token[r, s, i]),
            float(trees.probability[r, s, i]),
        )
        for i in range(int(trees.size[r, s]))
    ]
    places = [
        Place(
            int(beam.candidate[r, s, p]),
            int(beam.parent_row[r, s, p]),
            frozenset(np.flatnonzero(beam.ancestors[r, s, p]).tolist()),
        )
        for p in range(int(beam.size[r, s]))
    ]
    return nodes, places


@given(cases())
def test_grow_equals_its_twin(case: Case) -> None:
    width, steps = draws(case)
    trees, beam = new_trees(case.replicas, case.limits), new_beam(case.replicas, case.limits)
    # Arrays are reused from iteration to iteration: what the last one left must not matter.
    beam.ancestors[:] = True
    beam.candidate[:] = 0
    wanted: dict[tuple[int, ...], tuple[list[Node], list[Place]]] = {}
    for step, (alive, tokens, chances) in enumerate(steps, 1):
        grow(step, alive, width, tokens, chances, trees, beam)
        for at in np.ndindex(*alive.shape):
            nodes, places = wanted.get(at, ([], []))
            if alive[at]:
                wanted[at] = grow_twin(
                    step,
                    int(width[at]),
                    case.limits.max_width,
                    tokens[at].tolist(),
                    chances[at].tolist(),
                    nodes,
                    places,
                )
            else:
                wanted[at] = (nodes, [])
            assert grown(trees, beam, *at) == wanted[at]


@given(cases())
def test_replicas_grow_apart(case: Case) -> None:
    width, steps = draws(case)
    trees, beam = new_trees(case.replicas, case.limits), new_beam(case.replicas, case.limits)
    alone = [(replica(trees, r), replica(beam, r)) for r in range(case.replicas)]
    for step, (alive, tokens, chances) in enumerate(steps, 1):
        grow(step, alive, width, tokens, chances, trees, beam)
        for r, (one_trees, one_beam) in enumerate(alone):
            mine = slice(r, r + 1)
            grow(step, alive[mine], width[mine], tokens[mine], chances[mine], one_trees, one_beam)
            assert_same(replica(trees, r), one_trees)
            assert_same(replica(beam, r), one_beam)
