"""Twin of `engine.kernels.walk.accepted_within` for one slot: prune the tree and walk it again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.twins.walk import walk


def accepted_within(
    deepest: int,
    tier: int,
    parent: Sequence[int],
    depth: Sequence[int],
    rank: Sequence[int],
    token: Sequence[int],
    kept: Collection[int],
    root_token: int,
    node_token: Sequence[int],
    room: int,
    stops: Collection[int],
) -> int:
    """Tokens emitted had only nodes of depth ≤ deepest among the `tier` likeliest been kept."""
    pruned = [i for i in kept if depth[i] <= deepest and rank[i] < tier]
    none = [float("-inf")] * len(parent)
    again = walk(parent, token, pruned, root_token, node_token, none, 1.0, room, stops)
    return len(again.tokens)
