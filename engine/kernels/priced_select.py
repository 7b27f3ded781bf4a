"""Nodes over the batch by what they bring against what verifying them costs: a sweep, exact.

Drafting is paid for by now. Nodes are taken the most valuable first, u · f each, while the best
prefix by (Σ u of the roots + Σ u · f) / (t + λ · joules) is noted; only prefixes that keep to the
power cap count. Since a node is worth no more than its parent, every prefix is a set of trees. The
sweep ends, and nodes are not even sorted, where no longer prefix can win (`priced_sweep` says why);
under a power cap it does not.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.descending import descending
from engine.kernels.least_price import least_price
from engine.protocol import Bools, Floats, Ints


@njit(cache=True, error_model="numpy")
def priced_select(
    weight: Floats,  # [S] u, 0 in slots that do not take part
    base: float,  # Σ u of all roots
    scale: Floats,  # [D] by which probabilities of each layer are off; never rises
    least: float,  # probability below which no node is looked at
    sunk_s: float,
    sunk_joules: float,
    verify_s: Floats,  # [K + 1] roots and 0..K nodes
    verify_joules: Floats,  # [K + 1]
    joule_s: float,
    cap_watts: float,
    most: Ints,  # [S] nodes that a request may get
    room: Ints,  # [S] of these, nodes that fit in the pages it has
    page_tokens: int,
    free_pages: int,
    size: Ints,
    depth: Ints,
    probability: Floats,
) -> tuple[Bools, Floats]:
    """Which candidates to verify [S, N], and the probability kept by layer [D], unscaled.

    `size` [S], `depth` and `probability` [S, N] are those of `engine.protocol.Candidates`, whose
    probabilities fall along a path. A node that needs a page when none is free is passed over, and
    so is all that the request has behind it.
    """
    slots, most_candidates = probability.shape
    price = verify_s + joule_s * verify_joules
    dearer = least_price(price)
    if cap_watts < np.inf:  # a prefix above the cap does not count, and one behind it may
        dearer[:] = 0.0
    best = base / (sunk_s + joule_s * sunk_joules + price[0])
    enough = max(best * dearer.min(), 0.0)
    kept = np.zeros((slots, most_candidates), np.bool_)
    mass = np.zeros(len(scale))
    where = np.empty(size.sum(), np.int64)
    value = np.empty(size.sum())
    count = 0
    for s in range(slots):
        if weight[s] <= 0:
            continue
        for i in range(size[s]):
            worth = weight[s] * probability[s, i] * scale[depth[s, i] - 1]
            if probability[s, i] >= least and worth > enough:
                where[count] = s * most_candidates + i
                value[count] = worth
                count += 1
    full = np.zeros(slots, np.bool_)
    used = np.zeros(slots, np.int64)
    pages, taken, best_taken = 0, 0, 0
    gained = 0.0
    took = np.empty(count, np.int64)
    for at in descending(value[:count]):
        if taken + 1 >= len(verify_s) or value[at] <= best * dearer[taken]:
            break
        s = where[at] // most_candidates
        if full[s]:
            continue
        page = 1 if used[s] >= room[s] and (used[s] - room[s]) % page_tokens == 0 else 0
        if used[s] >= most[s] or pages + page > free_pages:
            full[s] = True
            continue
        used[s] += 1
        pages += page
        gained += value[at]
        took[taken] = where[at]
        taken += 1
        seconds = sunk_s + verify_s[taken]
        joules = sunk_joules + verify_joules[taken]
        if joules <= cap_watts * seconds:
            ratio = (base + gained) / (seconds + joule_s * joules)
            if ratio > best:
                best, best_taken = ratio, taken
    for at in range(best_taken):
        s, i = took[at] // most_candidates, took[at] % most_candidates
        kept[s, i] = True
        mass[depth[s, i] - 1] += probability[s, i]
    return kept, mass
