"""Twin of `engine.kernels.walk.walk` for one slot."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Walked(NamedTuple):
    """What is accepted and what is emitted."""

    path: list[int]
    tokens: list[int]
    let_through: int
    given_up: float


def walk(
    parent: Sequence[int],
    token: Sequence[int],
    kept: Collection[int],
    root_token: int,
    node_token: Sequence[int],
    log_ratio: Sequence[float],
    margin: float,
    room: int,
    stops: Collection[int],
) -> Walked:
    """Follow the target's tokens from the root; `room` is how many may still be emitted."""
    path: list[int] = []
    tokens: list[int] = []
    missed: list[float | None] = []
    wanted, node = root_token, -1
    while True:
        children = [i for i in sorted(kept) if parent[i] == node]
        exact = [i for i in children if token[i] == wanted]
        near = [i for i in children if margin < 1 and log_ratio[i] >= math.log(margin)]
        if not exact and not near:
            tokens.append(wanted)
            break
        node = exact[0] if exact else max(near, key=lambda i: (log_ratio[i], -i))
        missed.append(None if exact else -log_ratio[node])
        path.append(node)
        tokens.append(token[node])
        wanted = node_token[node]
    tokens = tokens[:room]
    ends = [i for i, t in enumerate(tokens) if t in stops]
    if ends:
        tokens = tokens[: ends[0] + 1]
    given = [m for m in missed[: len(tokens)] if m is not None]
    return Walked(path[: len(tokens)], tokens, len(given), sum(given))
