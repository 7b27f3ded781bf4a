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
    loose: list[bool] = []
    wanted, node = root_token, -1
    while True:
        children = [i for i in sorted(kept) if parent[i] == node]
        exact = [i for i in children if token[i] == wanted]
        near = [i for i in children if margin < 1 and log_ratio[i] >= math.log(margin)]
        if not exact and not near:
            tokens.append(wanted)
            break
        node = exact[0] if exact else max(near, key=lambda i: (log_ratio[i], -i))
        loose.append(not exact)
        path.append(node)
        tokens.append(token[node])
        wanted = node_token[node]
    tokens = tokens[:room]
    ends = [i for i, t in enumerate(tokens) if t in stops]
    if ends:
        tokens = tokens[: ends[0] + 1]
    return Walked(path[: len(tokens)], tokens, sum(loose[: len(tokens)]))
