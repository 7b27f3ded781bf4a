"""Twin of `engine.kernels.select.close_under_parents` for one slot."""

from __future__ import annotations

from collections.abc import Sequence


def close_under_parents(
    wanted: Sequence[bool], parent: Sequence[int], nodes: int
) -> tuple[list[int], int]:
    """Candidates that stay, and how many of the wanted ones go."""

    def rooted(i: int) -> bool:
        return wanted[i] and (parent[i] < 0 or rooted(parent[i]))

    kept = [i for i in range(len(parent)) if rooted(i)][:nodes]
    return kept, sum(wanted) - len(kept)
