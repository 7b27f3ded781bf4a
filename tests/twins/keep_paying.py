"""Twin of `engine.kernels.paying.keep_paying`, and the best that any trees can do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Node = tuple[int, int]  # (slot, candidate)


def keep_paying(
    first: Sequence[int],
    last: Sequence[int],
    probability: Sequence[Sequence[float]],
    tokens: float,
    seconds: Sequence[float],
    discount: float,
) -> tuple[set[Node], float]:
    """Nodes taken, and tokens expected with them."""
    tried = [(s, i) for s in range(len(first)) for i in range(first[s], last[s])]
    taken: set[Node] = set()
    for s, i in sorted(tried, key=lambda node: -probability[node[0]][node[1]]):
        benefit = discount * probability[s][i]
        cost = seconds[len(taken) + 1] - seconds[len(taken)]
        if not benefit * seconds[len(taken)] > cost * tokens:
            break
        taken.add((s, i))
        tokens += probability[s][i]
    return taken, tokens


def best_rate(trees: Sequence[Sequence[tuple[int, float]]], seconds: Sequence[float]) -> float:
    """Most tokens a second over all subtrees of all trees, given as (parent, path probability).

    A root's own token is expected in any case; seconds[m] is the cost of m nodes, roots aside.
    """
    nodes = [(s, i) for s, tree in enumerate(trees) for i in range(len(tree))]
    best = 0.0
    for count in range(len(nodes) + 1):
        for some in itertools.combinations(nodes, count):
            kept = set(some)
            if all(trees[s][i][0] < 0 or (s, trees[s][i][0]) in kept for s, i in kept):
                tokens = len(trees) + sum(trees[s][i][1] for s, i in kept)
                best = max(best, tokens / seconds[count])
    return best
