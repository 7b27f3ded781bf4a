"""Twin of `engine.kernels.layout.lay_out_trees` for one slot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Laid(NamedTuple):
    """One token of a batch, and the cache rows that it sees."""

    token: int
    position: int
    row: int
    offset: int
    extra: int
    sees: frozenset[int]


def lay_out_trees(
    context: int,
    last_token: int,
    kept: Collection[int],
    parent: Sequence[int],
    depth: Sequence[int],
    token: Sequence[int],
) -> list[Laid]:
    """The root, then kept nodes in order; each in a row of its own behind the context."""
    text = frozenset(range(context))
    laid = [Laid(last_token, context, context, 0, -1, text | {context})]
    row_of = {-1: context}
    for i in sorted(kept):
        row_of[i] = context + len(laid)
        line, node = {row_of[i]}, i
        while node >= 0:
            node = parent[node]
            line.add(row_of[node])
        at = len(laid)
        laid.append(Laid(token[i], context + depth[i], row_of[i], at, i, text | line))
    return laid
