"""Twin of `engine.kernels.commit.record_acceptance` for one slot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

DECAY = 0.9


class History(NamedTuple):
    """What was offered and accepted, by position."""

    proposed: list[float]
    accepted: list[float]
    since: list[int]


def record_acceptance(
    history: History, kept_depths: Collection[int], path_length: int
) -> tuple[History, list[bool], list[bool]]:
    """The history afterwards, and what was offered and accepted this time."""
    after = History([], [], [])
    offered = [d + 1 in kept_depths for d in range(len(history.since))]
    taken = [o and d + 1 <= path_length for d, o in enumerate(offered)]
    for d, seen in enumerate(offered):
        old = (history.proposed[d], history.accepted[d], history.since[d])
        new = (DECAY * old[0] + 1, DECAY * old[1] + taken[d], 0) if seen else (*old[:2], old[2] + 1)
        after.proposed.append(new[0])
        after.accepted.append(new[1])
        after.since.append(new[2])
    return after, offered, taken


def confidence(depth: Sequence[int], probability: Sequence[float], before: float) -> float:
    """Chance of the likeliest child of the root; what it was before when nothing was drafted."""
    children = [p for d, p in zip(depth, probability, strict=True) if d == 1]
    return max(children) if children else before
