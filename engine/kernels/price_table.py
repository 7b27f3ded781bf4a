"""What the parts of a step cost by size: the arithmetic of a `PriceTable`, in one pass.

Curves of the profile are looked up, each at every whole number from 0 on, and what a pass costs
beside its curve is added as `engine.profile.cost_model.PassCost` adds it, to the last bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints

VERIFY, HOST, NEXT, FIRST = range(4)
"""A verification, the engine's own work, a further draft step, and the first one."""
WATTS = 3
"""Of the curves; the first draft step may have too many rows to be looked up."""


@njit(cache=True, error_model="numpy")
def price_table(
    curves: Floats,  # [4, more than any count of tokens or rows]
    rates: Floats,  # [4, 3] seconds a cached token, a pair that attention looks at, and a request
    first_pieces: Floats,  # [3, K] knots of the first draft step's curve, seconds there, and slopes
    first_jumps: Floats,  # [2, J + 1] where it jumps, and how far it rose by the jumps before
    idle_watts: float,  # 0: as at the roots alone
    draft_watts: float,  # NaN: the same
    decoding: Bools,  # [S]
    context_tokens: Ints,  # [S]
    undrafted_tokens: Ints,  # [S]
    nodes: int,
    widths: Ints,
) -> tuple[Floats, Floats, Floats, Floats, float, Floats]:
    """The first five fields of `engine.protocol.PriceTable`, and `ordinary_s`."""
    slots, requests, context = len(decoding), 0, 0
    for s in range(slots):
        if decoding[s]:
            requests += 1
            context += context_tokens[s]
    kv_tokens, roots_watts = float(context), curves[WATTS, requests]
    verify_s, joules = np.empty(nodes + 1), np.empty(nodes + 1)
    beside_watts = idle_watts if idle_watts else roots_watts
    for node in range(nodes + 1):
        tokens = requests + node
        pass_s = _pass_s(curves, rates, VERIFY, tokens, kv_tokens, requests)
        host_s = _pass_s(curves, rates, HOST, tokens, kv_tokens, requests)
        verify_s[node] = pass_s + host_s
        joules[node] = curves[WATTS, tokens] * pass_s + beside_watts * host_s

    one, most = float(requests), float(max(undrafted_tokens.sum(), requests + 1))
    least_s = _first_s(first_pieces, first_jumps, rates, one, kv_tokens, requests)
    most_s = _first_s(first_pieces, first_jumps, rates, most, kv_tokens, requests)
    row_s = max(most_s - least_s, 0.0) / (most - one)
    first_s = np.array([least_s - row_s * one, row_s])

    ordinary_s, next_s = np.empty(slots + 1), np.zeros((len(widths), slots + 1))
    each = kv_tokens / max(requests, 1)
    for running in range(slots + 1):
        kv = running * each
        pass_s = _pass_s(curves, rates, VERIFY, running, kv, running)
        ordinary_s[running] = pass_s + _pass_s(curves, rates, HOST, running, kv, running)
        for at in range(len(widths)):
            if running > 0:
                rows = widths[at] * running
                next_s[at, running] = _pass_s(curves, rates, NEXT, rows, kv, running)
    watts = roots_watts if np.isnan(draft_watts) else draft_watts
    return verify_s, joules, first_s, next_s, watts, ordinary_s


@njit(cache=True, error_model="numpy")
def _pass_s(
    curves: Floats, rates: Floats, part: int, tokens: int, kv_tokens: float, requests: int
) -> float:
    """Seconds of a pass over so many tokens: `PassCost.of_whole`."""
    kv_token_s, attended_s, request_s = rates[part]
    attended = attended_s * tokens * (kv_tokens / max(requests, 1.0))
    return curves[part, tokens] + kv_token_s * kv_tokens + attended + request_s * requests


@njit(cache=True, error_model="numpy")
def _first_s(
    pieces: Floats, jumps: Floats, rates: Floats, rows: float, kv_tokens: float, requests: int
) -> float:
    """Seconds of a first draft step: `PassCost.at`."""
    knots, at_knots, slopes = pieces
    piece = max(np.searchsorted(knots, rows, side="right") - 1, 0)
    rise = slopes[piece] * max(rows - knots[piece], 0.0)
    curve_s = at_knots[piece] + rise + jumps[1, np.searchsorted(jumps[0], rows)]
    kv_token_s, attended_s, request_s = rates[FIRST]
    attended = attended_s * rows * kv_tokens / max(requests, 1.0)
    return curve_s + attended + (kv_token_s * kv_tokens + request_s * requests)
