"""Twin of `engine.replay.fleet.trees`: the tree of a plan, and a budget shared by a batch."""

from __future__ import annotations

from collections.abc import Sequence

from tests.twins.replay_children import ROOT, Recorded

TIE = 1e-12


def plan_tree(nodes: Sequence[Recorded], depth: int, width: int, most: int) -> list[int]:
    """Indices of the nodes kept: of those drafted, the first."""
    drafted = [
        i for i, node in enumerate(nodes) if node.depth <= depth and node.widths >> width - 1 & 1
    ]
    return drafted[:most]


def accepted(nodes: Sequence[Recorded], kept: Sequence[int], text: Sequence[int]) -> int:
    """How far a walk along `text` goes in the tree of the nodes kept."""
    at, length = ROOT, 0
    while True:
        found = [i for i in kept if nodes[i].parent == at and nodes[i].token == text[length]]
        if not found:
            return length
        at, length = found[0], length + 1


def path_probability(nodes: Sequence[Recorded], i: int) -> float:
    """Multiplied up from the root, no two of a place alike."""
    ranked = nodes[i].probability * (1.0 - TIE * i)
    above = nodes[i].parent
    if above == ROOT:
        return ranked
    return path_probability(nodes, above) * (
        ranked / (nodes[above].probability * (1.0 - TIE * above))
    )


def share_budget(
    places: Sequence[Sequence[Recorded]], trees: Sequence[Sequence[int]], budget: int
) -> list[int]:
    """How many nodes each of the trees keeps of the `budget` likeliest of all."""
    ranked = sorted(
        (-path_probability(places[s], i), places[s][i].depth, s)
        for s, tree in enumerate(trees)
        for i in tree
    )
    kept = [s for _, _, s in ranked[: max(budget, 0)]]
    return [kept.count(s) for s in range(len(trees))]
