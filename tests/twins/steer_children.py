"""Twin of `engine.kernels.known_text.steer_children` for one node: its children, best first."""

from __future__ import annotations

from collections.abc import Sequence


def on_path(text: Sequence[int], context: int, tokens: Sequence[int]) -> bool:
    """Whether the tokens from below the root to a node are the text's."""
    return list(text[context + 1 : context + 1 + len(tokens)]) == list(tokens)


def put(right: int, rank: int, vocab: int, siblings: Sequence[int]) -> list[int]:
    """The siblings with the right token at `rank`, or at the end of fewer; -1: without it."""
    after = list(siblings)
    if not after:
        return after
    if rank < 0:
        free = [t % vocab for t in range(right + 1, right + vocab) if t % vocab not in after]
        return [free[0] if token == right else token for token in after]
    to = min(rank, len(after) - 1)
    if right in after:
        here = after.index(right)
        after[here], after[to] = after[to], right
    else:
        after[to] = right
    return after
