"""Twin of `engine.kernels.select.keep_best` for one replica, and what it must be as good as."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Tree = Sequence[tuple[int, int, float]]  # (parent, depth, path probability) of each candidate


def keep_best(trees: Sequence[Tree], nodes: Sequence[int], budget: int) -> tuple[set, int]:
    """Kept (slot, candidate) pairs and how many were dropped for the budget."""
    wanted = []
    for slot, tree in enumerate(trees):
        ranked = sorted((-p, depth, slot, i) for i, (_, depth, p) in enumerate(tree))
        wanted += ranked[: max(nodes[slot], 0)]
    kept = sorted(wanted)[: max(budget, 0)]
    return {(slot, i) for _, _, slot, i in kept}, len(wanted) - len(kept)


def best_total(trees: Sequence[Tree], nodes: Sequence[int], budget: int) -> float:
    """Largest sum of path probabilities over all sets closed under parents, by trying them all."""
    everything = [(s, i) for s, tree in enumerate(trees) for i in range(len(tree))]
    best = 0.0
    for count in range(min(budget, len(everything)) + 1):
        for chosen in combinations(everything, count):
            if _allowed(set(chosen), trees, nodes):
                best = max(best, sum(trees[s][i][2] for s, i in chosen))
    return best


def _allowed(chosen: set[tuple[int, int]], trees: Sequence[Tree], nodes: Sequence[int]) -> bool:
    closed = all(trees[s][i][0] < 0 or (s, trees[s][i][0]) in chosen for s, i in chosen)
    return closed and all(sum(c[0] == s for c in chosen) <= n for s, n in enumerate(nodes))
