"""Twin of `engine.kernels.best_trees.best_trees`: every tree of a shape is built and weighed.

A tree is the tuple of its root's subtrees, the likeliest child's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

Tree = tuple["Tree", ...]


@cache
def all_trees(nodes: int, layers: int, ranks: int) -> tuple[Tree, ...]:
    """Every tree of exactly so many nodes in at most so many layers, `ranks` children at most."""
    if layers < 1 or nodes < 1:
        return ()
    return tuple(_forests(nodes - 1, layers - 1, ranks, ranks))


def _forests(nodes: int, layers: int, most: int, ranks: int) -> Iterator[Tree]:
    """Every row of at most `most` trees that have so many nodes together."""
    if nodes == 0:
        yield ()
    elif most > 0:
        for count in range(1, nodes + 1):
            for first in all_trees(count, layers, ranks):
                for others in _forests(nodes - count, layers, most - 1, ranks):
                    yield (first, *others)


def expected(tree: Tree, acceptance: Sequence[float]) -> float:
    """Tokens of the tree: 1 for its root, and each child's with the chance of its rank."""
    below = (p * expected(child, acceptance) for p, child in zip(acceptance, tree, strict=False))
    return 1.0 + sum(below)


def most_tokens(acceptance: Sequence[float], nodes: int, layers: int) -> float:
    """The best of all trees, -inf where there is none."""
    trees = all_trees(nodes, layers, len(acceptance))
    return max((expected(tree, acceptance) for tree in trees), default=float("-inf"))
