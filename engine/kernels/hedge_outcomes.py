"""What subtrees of a verified tree would have emitted, and the weights that follow from it.

An outcome does not name the nodes that the target took. It tells how many they were, and by
`accepted_within` in which tier of ranks each of them lies (0, 1, 2 to 3, 4 to 7, …). Mostly one
path of the tree fits that. Where several do, each counts by the probability that the drafter gave
to a walk that ends just there: its path probability less that of its verified children.

Rates, shares and prices are `policies.hedge`'s.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints

LEAST = 1e-9  # of a path probability, that a walk may end at a node whose children look certain


@njit(cache=True, error_model="numpy")
def subtree_tokens(
    told: Bools,  # [S] slots whose verified tree is the one that was marked
    accepted: Bools,  # [S, D] by position
    within: Ints,  # [S, D + 1, T] `Outcome.accepted_within`
    tiers: Ints,  # [T] NODE_TIERS
    size: Ints,  # [S] of the candidates, as all that follow [S, N]
    parent: Ints,
    depth: Ints,
    probability: Floats,
    kept: Bools,
    rank: Ints,
    member: Ints,  # bit e where the subtree of shape e has the candidate
    tokens: Floats,  # [S, E] written: the bonus token included; NaN where no path fits
) -> Ints:
    """Paths [S] that fit what was told; tokens are exact where it is one."""
    slots, experts = tokens.shape
    fitting = np.zeros(slots, np.int64)
    lowest, highest = np.empty(within.shape[1], np.int64), np.empty(within.shape[1], np.int64)
    path = np.empty(within.shape[1], np.int64)
    inside = np.empty(experts)
    for s in range(slots):
        if not told[s]:
            continue
        length = accepted[s].sum()
        if length == 0:
            fitting[s] = 1
            tokens[s] = 1.0
            continue
        for layer in range(1, length + 1):
            lowest[layer], highest[layer] = _ranks(within[s, layer], layer + 1, tiers)
        ending = _ending(length, size[s], parent[s], depth[s], probability[s], kept[s])
        inside[:] = 0.0
        total = 0.0
        for i in range(size[s]):
            if ending[i] <= 0.0:
                continue
            node, fits = i, True
            for layer in range(length, 0, -1):
                path[layer] = node
                fits = fits and lowest[layer] <= rank[s, node] < highest[layer]
                node = parent[s, node]
            if not fits:
                continue
            fitting[s] += 1
            total += ending[i]
            for layer in range(1, length + 1):
                bits = member[s, path[layer]]
                for e in range(experts):
                    inside[e] += ending[i] * ((bits >> e) & 1)
        for e in range(experts):
            tokens[s, e] = 1.0 + inside[e] / total if total > 0.0 else np.nan
    return fitting


@njit(cache=True)
def _ranks(within: Ints, tokens: int, tiers: Ints) -> tuple[int, int]:
    """Lowest rank, and the one above the highest, of a node with which so many are emitted."""
    lowest = 0
    for t in range(len(tiers)):
        if within[t] >= tokens:
            return lowest, tiers[t]
        lowest = tiers[t]
    return lowest, np.iinfo(np.int64).max


@njit(cache=True, error_model="numpy")
def _ending(
    length: int, size: int, parent: Ints, depth: Ints, probability: Floats, kept: Bools
) -> Floats:
    """Probability [size], to the drafter, of walks that end at nodes of that depth; else 0."""
    found = np.zeros(size)
    for i in range(size):
        if kept[i] and depth[i] == length:
            found[i] = probability[i]
        elif kept[i] and depth[i] == length + 1:
            found[parent[i]] -= probability[i]
    for i in range(size):
        if kept[i] and depth[i] == length:
            found[i] = max(found[i], LEAST * probability[i])
    return found


@njit(cache=True, error_model="numpy")
def reweigh(
    told: Bools,  # [S]
    slo_class: Ints,  # [S]
    known: Ints,  # [S] bits of the shapes whose tokens are known
    tokens: Floats,  # [S, E]
    cost: Floats,  # [E] tokens that a request's part of a step is worth
    rate: float,
    share: float,
    weights: Floats,  # [C, E] of each class, together 1; written
) -> None:
    """Weights after these outcomes: exponential ones, then a share of them given to all alike.

    Shapes of which a request tells nothing sleep: they keep what they have, and neither give nor
    take a share.
    """
    experts = weights.shape[1]
    fresh = np.empty(experts)
    for s in range(len(told)):
        if not told[s] or np.isnan(tokens[s, 0]):
            continue
        own, awake = weights[slo_class[s]], 0
        best = -np.inf
        for e in range(experts):
            if (known[s] >> e) & 1:
                awake += 1
                best = max(best, tokens[s, e] - cost[e])
        mass = total = 0.0
        for e in range(experts):
            if (known[s] >> e) & 1:
                fresh[e] = own[e] * math.exp(rate * (tokens[s, e] - cost[e] - best))
                mass += own[e]
                total += fresh[e]
        for e in range(experts):
            if (known[s] >> e) & 1 and total > 0.0:
                own[e] = mass * ((1.0 - share) * fresh[e] / total + share / awake)
