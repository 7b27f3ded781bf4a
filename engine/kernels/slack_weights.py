"""What a request's tokens are worth by its slack, and how many a second all of them need.

The rule and its constants are `policies.slack_priced`'s.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True, error_model="numpy")
def slack_weights(
    active: Bools,
    objective_s: Floats,  # [S] seconds per token, inf for none
    slack_tokens: Floats,
    remaining_tokens: Ints,
    pace_s: float,
    power: float,
    lax: float,
    lost: float,
    reach: float,
) -> tuple[Floats, float]:
    """u [S], 0 in idle slots; and the tokens a second that objectives within reach need."""
    weight = np.zeros(len(active))
    needed_per_s = 0.0
    for s in range(len(active)):
        if not active[s]:
            continue
        weight[s] = lax
        if not np.isfinite(objective_s[s]):
            continue
        left = max(remaining_tokens[s], 1)
        allowed_s = objective_s[s] * (left + slack_tokens[s]) / left
        pressure = pace_s / max(allowed_s, 1e-12)
        if pressure > reach:
            weight[s] = lost
        else:
            weight[s] = max(pressure**power, lax)
            needed_per_s += 1 / max(allowed_s, 1e-12)
    return weight, needed_per_s


@njit(cache=True)
def drafting_s(
    depth: Ints,  # [S]
    undrafted_tokens: Ints,  # [S] rows in the first draft step, at least 1 each
    first_s: Floats,  # [2] first draft step: whoever drafts, and each row
    next_s: Floats,  # [S + 1] further draft step of 0..S requests
) -> float:
    """Seconds of drafting to these depths."""
    rows, deepest = 0, 0
    for s in range(len(depth)):
        if depth[s] > 0:
            rows += max(undrafted_tokens[s], 1)
            deepest = max(deepest, depth[s])
    if deepest == 0:
        return 0.0
    seconds = first_s[0] + first_s[1] * rows
    for step in range(2, deepest + 1):
        drafting = 0
        for s in range(len(depth)):
            drafting += depth[s] >= step
        seconds += next_s[drafting]
    return seconds
