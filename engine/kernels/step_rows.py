"""What a plan puts through the networks: rows of each draft step, and nodes that are verified.

`engine.profile` makes seconds of these counts. Controllers price several plans in one decision, so
they are counted here in one pass over the slots; `HardwareProfile.step_s` counts them with NumPy.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Ints


@njit(cache=True)
def step_rows(
    decoding: Bools,
    depth: Ints,
    width: Ints,
    nodes: Ints,
    context_tokens: Ints,
    undrafted_tokens: Ints,
) -> tuple[int, int, int, Ints]:
    """Nodes kept, requests that draft, their context, and the rows of their draft steps [deepest].

    All arrays are [S], as in a plan and its view. The first draft step runs what the drafter has
    not run yet, each further one the beams.
    """
    kept = drafting = context = deepest = 0
    for s in range(len(decoding)):
        if decoding[s] and nodes[s] > 0:
            deepest = max(deepest, depth[s])
    rows = np.zeros(deepest, np.int64)
    for s in range(len(decoding)):
        if decoding[s] and depth[s] > 0 and nodes[s] > 0:
            kept += min(nodes[s], width[s] + (depth[s] - 1) * width[s] ** 2)
            drafting += 1
            context += context_tokens[s]
            rows[0] += undrafted_tokens[s]
            rows[1 : depth[s]] += width[s]
    return kept, drafting, context, rows
