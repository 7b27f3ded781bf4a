"""Twins of Hedge's kernels: beams grown and pruned alone, every path tried, sums by hand."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

Shape = tuple[int, int, int]


class Tree(NamedTuple):
    """A slot's candidates in the order in which they were drafted."""

    parent: Sequence[int]
    depth: Sequence[int]
    probability: Sequence[float]

    def children(self, node: int) -> list[int]:
        """In the order in which they were drafted, the likeliest first."""
        return [i for i, above in enumerate(self.parent) if above == node]

    def likeliest(self, nodes: Collection[int]) -> list[int]:
        """The nodes in order of path probability; of equals what was drafted first."""
        return sorted(nodes, key=lambda i: (-self.probability[i], i))


def subtree(tree: Tree, shape: Shape, drafted_width: int) -> tuple[list[int], int]:
    """Nodes of the beam of that shape as far as the drafted one has them, and the layer below which
    it may have more (one that nothing reaches where it has none)."""
    depth, width, nodes = shape
    beam, found, lost_below = [-1], [], 10**9
    for layer in range(1, depth + 1):
        layer_nodes = [c for node in beam for c in tree.children(node)[:width]]
        found += layer_nodes
        beam = tree.likeliest(layer_nodes)[:width]
        wide = tree.likeliest([i for i, d in enumerate(tree.depth) if d == layer])[:drafted_width]
        if set(beam) - set(wide):
            lost_below = min(lost_below, layer)
    return tree.likeliest(found)[:nodes], lost_below


def marked(
    tree: Tree,
    drafted: tuple[int, int],
    deepest: int,
    shapes: Sequence[Shape],
    wanted: Collection[int],
    most: int,
) -> tuple[dict[int, set[int]], list[int], set[int]]:
    """By shape its nodes, what is kept, and the shapes that the verified tree will tell of."""
    found = {e: subtree(tree, shape, drafted[1]) for e, shape in enumerate(shapes)}
    union = set().union(*(found[e][0] for e in wanted))
    kept = tree.likeliest(union)[:most]
    known = {
        e
        for e, (depth, width, _) in enumerate(shapes)
        if width <= drafted[1]
        and min(depth, deepest) <= drafted[0]
        and found[e][1] >= min(depth, deepest)
        and set(found[e][0]) <= set(kept)
    }
    return {e: set(nodes) for e, (nodes, _) in found.items()}, kept, known


def tokens_of(
    tree: Tree,
    kept: Collection[int],
    members: Mapping[int, set[int]],
    within: Sequence[Sequence[int]],
    tiers: Sequence[int],
    length: int,
) -> tuple[dict[int, float], int]:
    """Tokens by shape, expected over the kept paths of that length that fit, and how many do."""
    rank = {node: place for place, node in enumerate(tree.likeliest(range(len(tree.parent))))}
    paths = [[node] for node in kept if tree.depth[node] == length] if length else [[]]
    for path in paths:
        while path and tree.parent[path[0]] >= 0:
            path.insert(0, tree.parent[path[0]])
    fitting = [
        path
        for path in paths
        if all(
            (rank[node] < tier) == (within[layer][t] > layer)
            for layer, node in enumerate(path, 1)
            for t, tier in enumerate(tiers)
        )
    ]
    weights = []
    for path in fitting:
        below = (
            sum(tree.probability[c] for c in tree.children(path[-1]) if c in kept) if path else 0
        )
        own = tree.probability[path[-1]] if path else 1.0
        weights.append(max(own - below, 1e-9 * own))
    tokens = {
        e: sum(w * (1 + len(set(path) & nodes)) for w, path in zip(weights, fitting, strict=True))
        / sum(weights)
        for e, nodes in members.items()
    }
    return tokens, len(fitting)


def reweighed(
    weights: Sequence[float], gains: Mapping[int, float], rate: float, share: float
) -> list[float]:
    """One request's outcome: those with a gain share out their own mass."""
    mass = sum(weights[e] for e in gains)
    fresh = {e: weights[e] * math.exp(rate * gain) for e, gain in gains.items()}
    total = sum(fresh.values())
    return [
        mass * ((1 - share) * fresh[e] / total + share / len(gains)) if e in gains else weight
        for e, weight in enumerate(weights)
    ]
