"""What tree shapes cost a batch, and the shapes that its requests are given: decisions of Hedge.

The rule and its constants are `policies.hedge`'s.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True, error_model="numpy")
def shape_seconds(
    active: Bools,  # [S]
    undrafted_tokens: Ints,  # [S] rows that each request has in its first draft step
    shapes: Ints,  # [E, 3] depth, place of the width among those of `next_s`, nodes
    verify_s: Floats,  # [K + 1] roots and 0..K nodes; beyond, the last slope goes on
    first_s: Floats,  # [2] first draft step: whoever drafts, and each row
    next_s: Floats,  # [B, S + 1] further draft step of 0..S requests
    spread: float,  # iterations over which catching up is spread
    seconds: Floats,  # [E] written
) -> None:
    """Seconds of a step in which everybody has that shape."""
    requests = rows = 0
    for s in range(len(active)):
        if active[s]:
            requests += 1
            rows += max(undrafted_tokens[s], 1)
    first_rows = requests + (rows - requests) / spread
    last = len(verify_s) - 1
    slope_s = (verify_s[last] - verify_s[last // 2]) / max(last - last // 2, 1)
    for e in range(len(shapes)):
        depth, beam, each = shapes[e]
        nodes = requests * each
        seconds[e] = verify_s[min(nodes, last)] + slope_s * max(nodes - last, 0)
        if depth > 0:
            seconds[e] += first_s[0] + first_s[1] * first_rows
            seconds[e] += (depth - 1) * next_s[beam, requests]


@njit(cache=True)
def drawn_shapes(
    active: Bools,  # [S]
    slo_class: Ints,  # [S]
    weights: Floats,  # [C, E] of each class, together 1
    at: Floats,  # [C] drawn from [0, 1); below 0 the shape of most weight is taken
    shapes: Ints,  # [E, 3] depth, width, nodes
    scout: int,  # the first request that probes, counting those active; -1: nobody does
    apart: int,  # so many of them from one to the next
    probed: int,  # bits of the shapes whose union they draft
    union: Ints,  # [3] depth, width and nodes of it
    depth: Ints,  # [S] written, as all that follow
    width: Ints,
    nodes: Ints,
    wanted: Ints,  # bits of the shapes whose subtrees are to be verified
) -> None:
    """The shape that each class draws, for its requests; idle slots get none."""
    classes, experts = weights.shape
    drawn = np.full(classes, experts - 1)
    for c in range(classes):
        below = 0.0
        if at[c] < 0.0:
            drawn[c] = np.argmax(weights[c])
            continue
        for e in range(experts):
            below += weights[c, e]
            if at[c] < below:
                drawn[c] = e
                break
    count = 0
    for s in range(len(active)):
        depth[s], width[s], nodes[s], wanted[s] = 0, 1, 0, 0
        if not active[s]:
            continue
        e = drawn[slo_class[s]]
        if scout >= 0 and count % apart == scout:
            depth[s], width[s], nodes[s] = union
            wanted[s] = probed | np.int64(1) << e
            depth[s], width[s] = max(depth[s], shapes[e, 0]), max(width[s], shapes[e, 1])
            nodes[s] = max(nodes[s], shapes[e, 2])
        else:
            depth[s], width[s], nodes[s] = shapes[e]
            wanted[s] = np.int64(1) << e
        count += 1
