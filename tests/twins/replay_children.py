"""Twin of `engine.replay.lookup` for one slot: recorded children, and what the target says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ROOT = 255


class Recorded(NamedTuple):
    """A node of a place."""

    parent: int
    depth: int
    widths: int
    token: int
    probability: float
    log_ratio: float


def children_of(nodes: Sequence[Recorded], parent: int, width: int | None) -> list[int]:
    """Indices of a node's children that a beam of `width` has scored (None: any), best first."""
    found = [i for i, node in enumerate(nodes) if node.parent == parent]
    return [i for i in found if width is None or nodes[i].widths & 1 << (width - 1)]


def chance(nodes: Sequence[Recorded], i: int) -> float:
    """Of a node, given its parent."""
    parent = nodes[i].parent
    return nodes[i].probability / (1.0 if parent == ROOT else nodes[parent].probability)


def said(output: Sequence[int], emitted: int, depth: int) -> int:
    """What the target says after a node of that depth; 0 is the root, the last token emitted."""
    return output[min(emitted + depth, len(output) - 1)]
