"""Twin of `engine.kernels.layout.accepted_moves` for one slot."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def accepted_moves(
    context: int, path: Sequence[int], drafts: int, kept: Collection[int]
) -> list[tuple[int, int]]:
    """(source row, target row) of accepted nodes that do not stand where they belong."""
    row_of = {node: context + 1 + at for at, node in enumerate(sorted(kept))}
    pairs = [(row_of[node], context + 1 + at) for at, node in enumerate(path[:drafts])]
    return [(source, target) for source, target in pairs if source != target]
