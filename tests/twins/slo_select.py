"""Twin of `engine.kernels.slo_select.slo_select`, and what it must be as good as."""

from __future__ import annotations

from collections.abc import Sequence

Tree = Sequence[tuple[int, int, float]]  # (parent, depth, path probability) of each candidate


def slo_select(
    order: Sequence[int],
    goal: Sequence[float],
    most_to_goal: int,
    most: Sequence[int],
    width: Sequence[int],
    budget: int,
    trees: Sequence[Tree],
) -> tuple[set[tuple[int, int]], list[float]]:
    """Kept (slot, candidate) pairs, and each slot's expected tokens."""
    ranked = {s: _survivors(trees[s], width[s]) for s in order}
    kept: list[tuple[int, int]] = []

    def taken(slot: int) -> int:
        return sum(s == slot for s, _ in kept)

    def expected(slot: int) -> float:
        total = 1.0
        for s, i in kept:
            total += trees[s][i][2] if s == slot else 0.0
        return total

    for s in order:
        for i in ranked[s]:
            full = len(kept) >= budget or taken(s) >= min(most_to_goal, most[s])
            if full or expected(s) >= goal[s]:
                break
            kept.append((s, i))
    while len(kept) < budget:
        open_ = [s for s in order if taken(s) < min(most[s], len(ranked[s]))]
        if not open_:
            break
        nexts = {s: ranked[s][taken(s)] for s in open_}
        s = min(open_, key=lambda s: (-trees[s][nexts[s]][2], s))
        kept.append((s, nexts[s]))
    return set(kept), [expected(s) for s in range(len(trees))]


def best_expected(trees: Sequence[Tree], need: Sequence[float], budget: int) -> float | None:
    """Most expected tokens of all subtrees within the budget that meet every need; None: none do.

    Of each tree every subset is tried; of those that are subtrees the best of each size is enough.
    """
    best: dict[int, float] = {0: 0.0}  # by nodes over the trees so far
    for tree, least in zip(trees, need, strict=True):
        own = {count: 1 + total for count, total in _best_by_size(tree).items()}
        sums = [
            (used + count, before + value)
            for used, before in best.items()
            for count, value in own.items()
            if value >= least and used + count <= budget
        ]
        best = {}
        for used, value in sums:
            best[used] = max(best.get(used, value), value)
    return max(best.values(), default=None)


def _best_by_size(tree: Tree) -> dict[int, float]:
    above = [0 if parent < 0 else 1 << parent for parent, _, _ in tree]
    found: dict[int, float] = {}
    for chosen in range(1 << len(tree)):  # a bit for each candidate
        nodes = [i for i in range(len(tree)) if chosen >> i & 1]
        if all(above[i] & chosen == above[i] for i in nodes):
            total = sum(tree[i][2] for i in nodes)
            found[len(nodes)] = max(found.get(len(nodes), 0.0), total)
    return found


def _survivors(tree: Tree, width: int) -> list[int]:
    """The `width` likeliest of each layer, the likeliest first."""
    ranked = sorted(range(len(tree)), key=lambda i: (-tree[i][2], i))
    layers = [tree[i][1] for i in ranked]
    return [i for at, i in enumerate(ranked) if layers[:at].count(tree[i][1]) < width]
