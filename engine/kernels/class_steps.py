"""What the coming step costs without drafts, and under a plan by class: two prices in one pass.

A controller that watches prices asks for both in every decision. The arithmetic is
`engine.profile.hardware_profile.HardwareProfile.passes_s`'s, to the last bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints

VERIFY, HOST, FIRST, NEXT = range(4)


@njit(cache=True, error_model="numpy")
def class_steps(
    curves: Floats,  # [4, N] seconds of passes at every whole count of tokens below N
    rates: Floats,  # [4, 3] seconds a cached token, a pair that attention looks at, and a request
    decoding: Bools,  # [S]
    context_tokens: Ints,  # [S]
    undrafted_tokens: Ints,  # [S]
    slo_class: Ints,  # [S]
    tree: Floats,  # [3, C] depth, width and nodes; of a mean what is whole counts
) -> tuple[float, float]:
    """Seconds of an ordinary step and of the planned one; NaN where a pass is of N tokens or more.

    Trees count as large as planned.
    """
    requests = kept = drafting = kv_tokens = drafting_kv_tokens = behind = deepest = 0
    for s in range(len(decoding)):
        if not decoding[s]:
            continue
        c = slo_class[s]
        depth, width, nodes = int(tree[0, c]), int(tree[1, c]), int(tree[2, c])
        requests += 1
        kv_tokens += context_tokens[s]
        if depth > 0 and nodes > 0:
            kept += min(nodes, width + (depth - 1) * width * width)
            drafting += 1
            drafting_kv_tokens += context_tokens[s]
            behind += undrafted_tokens[s]
            deepest = max(deepest, depth)
    if requests == 0:
        return 0.0, 0.0
    ordinary_s = _pass_s(curves, rates, VERIFY, requests, kv_tokens, requests)
    ordinary_s += _pass_s(curves, rates, HOST, requests, kv_tokens, requests)
    if drafting == 0:
        return ordinary_s, ordinary_s
    planned_s = _pass_s(curves, rates, VERIFY, requests + kept, kv_tokens, requests)
    planned_s += _pass_s(curves, rates, HOST, requests + kept, kv_tokens, requests)
    further_s = 0.0
    for step in range(2, deepest + 1):
        rows = 0
        for s in range(len(decoding)):
            c = slo_class[s]
            if decoding[s] and int(tree[0, c]) >= step and int(tree[2, c]) > 0:
                rows += int(tree[1, c])
        further_s += _pass_s(curves, rates, NEXT, rows, drafting_kv_tokens, drafting)
    first_s = _pass_s(curves, rates, FIRST, behind, drafting_kv_tokens, drafting)
    return ordinary_s, planned_s + (first_s + further_s)


@njit(cache=True, error_model="numpy")
def _pass_s(
    curves: Floats, rates: Floats, part: int, tokens: int, kv_tokens: int, requests: int
) -> float:
    """Seconds of a pass over so many tokens: `PassCost.at`."""
    if tokens >= curves.shape[1]:
        return np.nan
    attended = rates[part, 1] * tokens * kv_tokens / max(float(requests), 1.0)
    rest = rates[part, 0] * kv_tokens + rates[part, 2] * requests
    return curves[part, tokens] + attended + rest
