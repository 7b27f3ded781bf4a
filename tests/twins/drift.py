"""Twin of `engine.replay.drift` for one slot: what of a tree is accepted under drift."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.twins.keyed_noise import GOLDEN, WORD, _mix, uniform
from tests.twins.replay_children import ROOT, Recorded, chance


def number(key: int, text: int, position: int, depth: int) -> float:
    """Of a depth behind an output position, 0 the first token's."""
    start = _mix((key + GOLDEN) & WORD)
    of_text = _mix((start + GOLDEN * (text + 1)) & WORD)
    return uniform(of_text, position, depth)


def accepted_under_drift(
    nodes: Sequence[Recorded],
    drafted: Collection[int],
    kept: Collection[int],
    following: Sequence[int],
    acceptance: float,
    numbers: Sequence[float],
) -> list[int]:
    """The accepted nodes of a place; `numbers` by depth, the first of depth 1."""
    path: list[int] = []
    while True:
        at, depth = (path[-1] if path else ROOT), len(path)
        offered = [i for i in sorted(drafted) if nodes[i].parent == at]
        if not offered:
            return path
        right = [i for i in offered if nodes[i].token == following[depth]]
        if acceptance < 1 and numbers[depth] >= acceptance:
            return path
        if acceptance > 1 and not right:
            q = chance(nodes, offered[0])
            odds = 1.0 if q >= 1 else (acceptance - 1) * q / (1 - q)
            right = offered[:1] if numbers[depth] < odds else []
        if not right or right[0] not in kept:
            return path
        path.append(right[0])
