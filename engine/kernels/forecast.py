"""What the layers of drafted trees were worth, and what nodes not drafted yet may be.

The rules and their constants are `policies.forecast`'s and `policies.slack_priced`'s.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def learn_layers(
    active: Bools,
    slo_class: Ints,
    size: Ints,
    depth: Ints,
    probability: Floats,
    keep: float,
    seen: Floats,
    total: Floats,
) -> None:
    """Add the likeliest nodes of each layer of these trees to `seen` and `total` [C, D, W].

    What was there before counts `keep` times, if anything was drafted at all.
    """
    _, layers, ranks = seen.shape
    if not (active & (size > 0)).any():
        return
    seen *= keep
    total *= keep
    best = np.empty((layers, ranks))
    for s in range(len(size)):
        if not active[s] or size[s] == 0:
            continue
        best[:] = -1.0
        for i in range(size[s]):
            chance, row = probability[s, i], best[depth[s, i] - 1]
            if chance <= row[ranks - 1]:
                continue
            at = ranks - 1
            while at > 0 and row[at - 1] < chance:
                row[at] = row[at - 1]
                at -= 1
            row[at] = chance
        for layer in range(layers):
            for rank in range(ranks):
                if best[layer, rank] >= 0:
                    seen[slo_class[s], layer, rank] += 1.0
                    total[slo_class[s], layer, rank] += best[layer, rank]


@njit(cache=True, error_model="numpy")
def class_layers(
    seen: Floats, total: Floats, scale: Floats, prior: float, first: float, siblings: float
) -> Floats:
    """Path probabilities [C, D, W] times `scale` [D], falling with layer and rank.

    A mean over all classes stands in for `prior` trees of each; where it knows nothing itself, a
    layer's first node has `first` of the best one above, and each further one `siblings` of the one
    before.
    """
    classes, layers, ranks = seen.shape
    found = np.empty((classes, layers, ranks))
    above, above_all = np.ones(classes), 1.0
    for layer in range(layers):
        guess, first_all = above_all * first, above_all
        for rank in range(ranks):
            worth, trees = prior * guess, prior
            for c in range(classes):
                worth += total[c, layer, rank]
                trees += seen[c, layer, rank]
            mean = worth / trees
            guess *= siblings
            first_all = mean if rank == 0 else first_all
            for c in range(classes):
                expected = prior * above[c] * mean / above_all
                chance = (total[c, layer, rank] + expected) / (seen[c, layer, rank] + prior)
                bound = above[c] if rank == 0 else found[c, layer, rank - 1]
                found[c, layer, rank] = min(chance, bound)
        above[:] = found[:, layer, 0]
        above_all = first_all
    for layer in range(layers):
        found[:, layer] = np.minimum(found[:, layer] * scale[layer], 1.0)
    return found


@njit(cache=True, error_model="numpy")
def likenesses(active: Bools, accepted: Floats, proposed: Floats, prior: float) -> Floats:
    """How much likelier each request [S] accepts a first draft than all do, 0.5 to 1.5.

    `accepted` and `proposed` are [S, D]; `prior` drafts accepted as usual come to each one's own.
    """
    first, offered = prior, 2 * prior
    for s in range(len(active)):
        if active[s]:
            first += accepted[s, 0]
            offered += proposed[s, 0]
    usual = first / offered
    found = np.ones(len(active))
    for s in range(len(active)):
        ratio = (accepted[s, 0] + prior * usual) / ((proposed[s, 0] + prior) * usual)
        found[s] = min(max(ratio, 0.5), 1.5)
    return found


@njit(cache=True, error_model="numpy")
def learn_acceptance(
    ran: Bools,
    accepted: Bools,
    drafts: Floats,
    keep: float,
    prior: float,
    largest: float,
    expected: Floats,
    found: Floats,
    scale: Floats,
) -> None:
    """Add drafts expected, `drafts` [D], and accepted, [S, D] of which those count that `ran`.

    `expected` and `found` [D] count `keep` times what they were, if anything was drafted at all.
    `scale` [D] becomes found over expected, `prior` more of both, at most `largest` and never
    rising with the layer.
    """
    if drafts[0] <= 0:
        return
    bound = largest
    for layer in range(len(drafts)):
        count = 0
        for s in range(len(ran)):
            count += ran[s] and accepted[s, layer]
        expected[layer] = keep * expected[layer] + drafts[layer]
        found[layer] = keep * found[layer] + count
        bound = min((found[layer] + prior) / (expected[layer] + prior), bound)
        scale[layer] = bound


@njit(cache=True)
def node_values(
    chance: Floats,
    slo_class: Ints,
    weight: Floats,
    likeness: Floats,
    remaining_tokens: Ints,
    least: float,
) -> Floats:
    """u · expected tokens [S, D, W] of nodes; 0 for none, and for one less likely than `least`.

    `chance` is [C, D, W], `weight` u [S]. Layer j counts `likeness` [S] to the power of j; still no
    node is likelier than the best one above it. No tree is as deep as the tokens that remain.
    """
    slots = len(weight)
    _, layers, ranks = chance.shape
    value = np.zeros((slots, layers, ranks))
    for s in range(slots):
        if weight[s] <= 0:
            continue
        bound, factor = 1.0, 1.0
        for layer in range(min(layers, remaining_tokens[s] - 1)):
            factor *= likeness[s]
            for rank in range(ranks):
                likely = min(chance[slo_class[s], layer, rank] * factor, bound)
                bound = likely if rank == 0 else bound
                if likely >= least:
                    value[s, layer, rank] = likely * weight[s]
    return value
