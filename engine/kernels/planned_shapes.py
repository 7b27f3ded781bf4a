"""The shapes to draft for the requests of a view: nodes are forecast, and the sweep chooses.

The rules are `policies.slack_priced`'s and `policies.forecast`'s, the sweep is
`engine.kernels.priced_sweep`'s. One call, since what a decision takes grows with its calls.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.forecast import class_layers, likenesses, node_values
from engine.kernels.priced_sweep import sweep_shapes
from engine.kernels.slack_weights import drafting_s
from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def planned_shapes(
    seen: Floats,  # [C, D, W] as `learn_layers` has them
    total: Floats,
    scale: Floats,  # [D] by which probabilities of each layer are off; never rises
    prior: float,  # as `class_layers` has them
    first: float,
    siblings: float,
    history_prior: float,  # drafts that a request's likeness to its class counts for
    least: float,  # probability below which a node is worth nothing
    active: Bools,  # [S]
    slo_class: Ints,  # [S]
    accepted: Floats,  # [S, D]
    proposed: Floats,  # [S, D]
    remaining_tokens: Ints,  # [S]
    max_nodes: int,  # that a request may get
    weight: Floats,  # [S] u, 0 in idle slots
    base: float,  # Σ u of all roots
    widths: Ints,  # beams to try, ascending, none above W; the first is 1
    verify_s: Floats,  # [K + 1] roots and 0..K nodes
    verify_joules: Floats,  # [K + 1]
    first_s: Floats,  # [2] first draft step: whoever drafts, and each row
    next_s: Floats,  # [len(widths), S + 1] further draft step of 0..S requests
    draft_watts: float,
    undrafted_tokens: Ints,  # [S] rows in the first draft step, at least 1 each
    amortised: float,  # decisions that share the rows beyond the first
    joule_s: float,
    cap_watts: float,
) -> tuple[Ints, Ints, Ints, int, float]:
    """Depth, width (all's) and nodes [S], how many nodes in all, and the seconds to draft them."""
    chance = class_layers(seen, total, scale, prior, first, siblings)
    likeness = likenesses(active, accepted, proposed, history_prior)
    value = node_values(chance, slo_class, weight, likeness, remaining_tokens, least)
    slots = len(active)
    rows, most = np.empty(slots), np.zeros(slots, np.int64)
    for s in range(slots):
        rows[s] = 1 + max(undrafted_tokens[s] - 1, 0) / amortised
        if active[s]:
            most[s] = max_nodes
    _, width, taken, depth, nodes = sweep_shapes(
        value, base, widths, verify_s, verify_joules, first_s, next_s, draft_watts, rows, most,
        joule_s, cap_watts,
    )  # fmt: skip
    at = 0
    while widths[at] < width:
        at += 1
    seconds = drafting_s(depth, undrafted_tokens, first_s, next_s[at])
    return depth, np.full(slots, max(width, 1)), nodes, taken, seconds
