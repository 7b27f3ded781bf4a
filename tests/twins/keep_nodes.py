"""Twins of `engine.replay.kept_nodes` for one slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.twins.grow import Node


class Compared(NamedTuple):
    """What the text says of each node."""

    on_path: list[bool]
    log_ratio: list[float]


def compare_with_text(
    place: int,
    output: Sequence[int],
    levels: Sequence[Sequence[float]],
    floor: Sequence[float],
    nodes: Sequence[Node],
) -> Compared:
    """Which nodes are the text's own, and what the target thinks of them."""

    def chain(i: int) -> list[int]:
        above = [] if nodes[i].parent < 0 else chain(nodes[i].parent)
        return [*above, nodes[i].token]

    compared = Compared([], [])
    for i, node in enumerate(nodes):
        tokens, ahead = chain(i), list(output[place + 1 : place + 1 + node.depth])
        compared.on_path.append(tokens == ahead)
        asked = len(ahead) == node.depth and tokens[:-1] == ahead[:-1]
        ratio = -float("inf")
        if asked:
            row = place + node.depth - 1
            if levels[row][node.token] >= floor[row]:
                ratio = levels[row][node.token] - levels[row][ahead[-1]]
        compared.log_ratio.append(ratio)
    return compared


def ranked(nodes: Sequence[Node]) -> list[int]:
    """Likeliest first, ties to the shallower, then to the one drafted first."""
    return sorted(range(len(nodes)), key=lambda i: (-nodes[i].probability, nodes[i].depth, i))


def keep_nodes(
    max_depth: int,
    max_width: int,
    max_nodes: int,
    most: int,
    nodes: Sequence[Node],
    scored: Sequence[set[int]],
    survives: Sequence[set[int]],
    on_path: Sequence[bool],
) -> list[int]:
    """The nodes to keep, in order."""
    order = ranked(nodes)
    wanted = {i for i in order if survives[i]}
    for width in range(1, max_width + 1):
        for depth in range(1, max_depth + 1):
            tree = [i for i in order if width in scored[i] and nodes[i].depth <= depth]
            wanted.update(tree[:max_nodes])
    kept = [i for i in order if i in wanted]
    idle = [i for i in kept if not survives[i] and not on_path[i]]
    foreign = [i for i in kept if survives[i] and not on_path[i]]
    gone = [*idle[::-1], *foreign[::-1]][: max(len(kept) - most, 0)]
    return [i for i in kept if i not in gone]
