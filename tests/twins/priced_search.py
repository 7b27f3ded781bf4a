"""What the slack-priced kernels must be as good as: every choice tried, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tests.twins.slo_select import Tree


def subtrees(tree: Tree) -> list[tuple[int, ...]]:
    """All sets of nodes that hold the parent of each."""
    found = []
    for bits in product((False, True), repeat=len(tree)):
        kept = tuple(i for i, bit in enumerate(bits) if bit)
        if all(tree[i][0] < 0 or tree[i][0] in kept for i in kept):
            found.append(kept)
    return found


def best_selection(
    trees: Sequence[Tree],
    weight: Sequence[float],
    scale: Sequence[float],
    sunk_s: float,
    verify_s: Sequence[float],
    verify_joules: Sequence[float],
    joule_s: float,
    cap_watts: float,
) -> float:
    """The largest Σ u · (1 + Σ f) over seconds and joules of all selections under the cap.

    Keeping nothing is allowed whatever it draws.
    """
    best = 0.0
    for kept in product(*map(subtrees, trees)):
        nodes = sum(map(len, kept))
        if nodes >= len(verify_s):
            continue
        seconds, joules = sunk_s + verify_s[nodes], verify_joules[nodes]
        if nodes and joules > cap_watts * seconds:
            continue
        worth = sum(
            u * (1 + sum(tree[i][2] * scale[tree[i][1] - 1] for i in chosen))
            for u, tree, chosen in zip(weight, trees, kept, strict=True)
        )
        best = max(best, worth / (seconds + joule_s * joules))
    return best


def best_shapes(
    value: Sequence[Sequence[Sequence[float]]],  # [S][D][W]
    base: float,
    widths: Sequence[int],
    verify_s: Sequence[float],
    first_s: tuple[float, float],
    next_s: Sequence[Sequence[float]],
    first_rows: Sequence[float],
) -> float:
    """The largest value over seconds of all widths, depths and nodes of each layer."""
    best = base / verify_s[0]
    for at, width in enumerate(widths):
        each = [_shapes(layers, width) for layers in value]
        for shapes in product(*each):
            nodes = sum(count for _, count, _ in shapes)
            if not 0 < nodes < len(verify_s):
                continue
            drafting = [depth for depth, _, _ in shapes]
            seconds = verify_s[nodes] + first_s[0]
            seconds += sum(first_s[1] * r for r, d in zip(first_rows, drafting, strict=True) if d)
            for step in range(2, max(drafting) + 1):
                seconds += next_s[at][sum(d >= step for d in drafting)]
            best = max(best, (base + sum(worth for *_, worth in shapes)) / seconds)
    return best


def _shapes(layers: Sequence[Sequence[float]], width: int) -> list[tuple[int, int, float]]:
    """(depth, nodes, value) of all trees of one request: so many of the best of each layer."""
    found = [(0, 0, 0.0)]
    for counts in product(range(width + 1), repeat=len(layers)):
        depth = sum(1 for c in counts if c)
        if depth and all(counts[:depth]):
            worth = sum(sum(layer[:c]) for layer, c in zip(layers, counts, strict=True))
            found.append((depth, sum(counts), worth))
    return found
