"""Twin of `engine.kernels.union_beam.grow_union` for one slot: every width grown by itself.

It knows nothing of unions: it grows the tree of each width with the twin of `grow`, asking for
children by a node's tokens, and puts the trees on top of one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.twins.grow import Node, Place, grow

Chain = tuple[int, ...]  # tokens from the root on; siblings differ
Children = Callable[[Chain], tuple[Sequence[int], Sequence[float]]]


class Union(NamedTuple):
    """By node: its depth, its path probability, the widths that have it, in whose beams it is."""

    probability: dict[Chain, float]
    scored: dict[Chain, set[int]]
    survives: dict[Chain, set[int]]


def chain(nodes: Sequence[Node], i: int) -> Chain:
    """Tokens of node i and of all above it."""
    above = () if nodes[i].parent < 0 else chain(nodes, nodes[i].parent)
    return (*above, nodes[i].token)


def grown(width: int, depth: int, children: Children) -> tuple[list[Node], list[list[Chain]]]:
    """One width's candidates in the order of drafting, and the beam that every step made."""
    nodes: list[Node] = []
    beam: list[Place] = []
    beams = []
    for step in range(1, depth + 1):
        parents = [()] if step == 1 else [chain(nodes, place.candidate) for place in beam]
        answers = [children(parent) for parent in parents]
        tokens, chances = [a[0] for a in answers], [a[1] for a in answers]
        nodes, beam = grow(step, width, width, tokens, chances, nodes, beam)
        beams.append([chain(nodes, place.candidate) for place in beam])
    return nodes, beams


def grow_union(max_width: int, depth: int, children: Children) -> Union:
    """All widths up to `max_width`, `depth` steps deep."""
    union = Union({}, {}, {})
    for width in range(1, max_width + 1):
        nodes, beams = grown(width, depth, children)
        for i, node in enumerate(nodes):
            union.probability[chain(nodes, i)] = node.probability
            union.scored.setdefault(chain(nodes, i), set()).add(width)
        for survivors in beams:
            for survivor in survivors:
                union.survives.setdefault(survivor, set()).add(width)
    return union
