"""What is made of a drafted batch: its trees are noted for forecasts, and the nodes chosen.

The rules are `policies.slack_priced`'s, the choice is `engine.kernels.priced_select`'s.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.forecast import learn_layers
from engine.kernels.priced_select import priced_select
from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def learned_selection(
    active: Bools,  # [S]
    slo_class: Ints,  # [S]
    size: Ints,
    depth: Ints,
    probability: Floats,
    keep: float,
    seen: Floats,  # [C, D, W] as `learn_layers` has them
    total: Floats,
    scale: Floats,  # [D] by which probabilities of each layer are off; never rises
    weight: Floats,  # [S] u, 0 in slots that do not take part
    base: float,  # Σ u of all roots
    least: float,  # probability below which no node is looked at
    draft_s: float,  # that drafting took
    verify_s: Floats,  # [K + 1] roots and 0..K nodes
    verify_joules: Floats,  # [K + 1]
    draft_watts: float,
    joule_s: float,
    cap_watts: float,
    max_nodes: int,  # that a request may get
    context_tokens: Ints,  # [S]
    page_tokens: int,
    free_pages: int,
) -> tuple[Bools, Floats]:
    """Which candidates to verify [S, N], and the probability kept by layer [D], unscaled.

    `size` [S], `depth` and `probability` [S, N] are those of `engine.protocol.Candidates`.
    """
    learn_layers(active, slo_class, size, depth, probability, keep, seen, total)
    most = np.full(len(size), max_nodes)
    # Beside a context there is its root, and what is left of the page that this lies in.
    room = -(context_tokens + 1) % page_tokens
    return priced_select(
        weight, base, scale, least, draft_s, draft_s * draft_watts, verify_s, verify_joules,
        joule_s, cap_watts, most, room, page_tokens, free_pages, size, depth, probability,
    )  # fmt: skip
