"""The fixed trees that sweeps try: what stands for "any fixed tree" (ALGORITHMS.md §4 and §10).

Out of depths 0 to 8, widths 1, 2, 4, 8 and the tiers of nodes that such beams can fill, twenty that
lie apart: ordinary decoding, chains, and beams from slim to EAGLE-3's own. A finer grid finds the
same capacity within a few per cent, since neighbours cost and accept about the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol import Limits
from engine.replay.fleet.state import FleetPlan


class Tree(NamedTuple):
    """A tree that never changes: draft steps, beam width, nodes kept without the root."""

    depth: int
    width: int
    nodes: int

    @property
    def spec(self) -> str:
        """By the name that `policies.registry` makes it of."""
        if self.depth == 0:
            return "autoregressive"
        if self.width == 1 and self.nodes == self.depth:
            return f"chain({self.depth})"
        return f"eagle3({self.depth},{self.width},{self.nodes})"


GRID = tuple(
    Tree(*row)
    for row in (
        (0, 1, 1),
        *((depth, 1, depth) for depth in (1, 2, 3, 4, 6, 8)),
        *((2, 2, 4), (3, 2, 6), (4, 2, 8), (6, 2, 12)),
        *((2, 4, 8), (3, 4, 8), (5, 4, 8), (4, 4, 16), (6, 4, 16), (8, 4, 32)),
        *((4, 8, 16), (6, 8, 32), (8, 8, 64)),
    )
)
"""From the cheapest on: of equally good ones the first is taken."""


def within(limits: Limits) -> tuple[Tree, ...]:
    """The grid's trees that an engine of these limits grows whole."""
    most = limits.max_depth, limits.max_width, limits.max_nodes
    return tuple(tree for tree in GRID if all(a <= b for a, b in zip(tree, most, strict=True)))


def planned(trees: Sequence[Tree], classes: int, node_budget: int) -> FleetPlan:
    """One tree a replica, for all of its `classes`; the budget should be one that never binds."""
    depth, width, nodes = np.repeat(np.array(trees).T[:, :, None], classes, axis=2)
    everybody = np.full(len(trees), node_budget), np.ones(len(trees))
    return FleetPlan(depth, width, nodes, *everybody)
