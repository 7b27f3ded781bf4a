"""Twin of `engine.kernels.beam.grow` for one slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Node(NamedTuple):
    """A candidate."""

    parent: int
    depth: int
    token: int
    probability: float


class Place(NamedTuple):
    """A node of the beam: its candidate, its parent's place, and the draft rows that it sees."""

    candidate: int
    parent_row: int
    rows: frozenset[int]


def grow(
    step: int,
    width: int,
    widest: int,
    tokens: Sequence[Sequence[int]],
    chances: Sequence[Sequence[float]],
    nodes: list[Node],
    beam: list[Place],
) -> tuple[list[Node], list[Place]]:
    """All candidates after this step, and the next beam."""
    parents: list[tuple[int, float, frozenset[int]]]
    if step == 1:
        nodes, parents = [], [(-1, 1.0, frozenset())]
    else:
        parents = [(p.candidate, nodes[p.candidate].probability, p.rows) for p in beam]
    fresh = [
        (place, Node(parent, step, tokens[place][c], above * chances[place][c]))
        for place, (parent, above, _) in enumerate(parents)
        for c in range(width)
        if chances[place][c] > 0
    ]
    best = sorted(range(len(fresh)), key=lambda i: -fresh[i][1].probability)[:width]
    after = [
        Place(len(nodes) + i, fresh[i][0], parents[fresh[i][0]][2] | {(step - 1) * widest + place})
        for place, i in enumerate(best)
    ]
    return nodes + [node for _, node in fresh], after
