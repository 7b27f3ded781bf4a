"""Twin of `engine.kernels.commit.commit_tokens` for one slot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Committed(NamedTuple):
    """A request after an iteration."""

    output: list[int]
    valid: int  # of the new tokens
    done: bool


def commit_tokens(
    output: Sequence[int],
    fresh: Sequence[int],
    late_s: float,
    objective_s: float,
    max_tokens: int,
    stops: Collection[int],
) -> Committed:
    """`late_s` is the time since the first token; token i is due at i · objective."""
    after = [*output, *fresh]
    valid = sum(late_s <= i * objective_s for i in range(len(output), len(after)))
    return Committed(after, valid, len(after) >= max_tokens or after[-1] in stops)
