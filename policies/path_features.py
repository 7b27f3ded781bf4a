"""Path scores and position: what the policies of Learning-to-Draft see (arXiv 2603.01639).

Its size policy sees, of one request, the log-probability of every drafted path, layer by layer (W
of the first layer, W² of each further one), 29 times the position in thousands of tokens, and 29
times the layers drafted behind the first, in tens. That layout is this one, with the engine's own W
and depth; for W = 10 and 13 layers it has the published 1,210 + 58 entries. Its depth policy's 128
are contained: the 100 of the latest layer, position and depth.

What differs is *when* they are seen. Learning-to-Draft asks its depth policy after each draft layer
and its size policy after the last, about the tree at hand. Here a decision falls between two
iterations, so it chooses depth, width and nodes at once, and what it sees is the tree that was
drafted last for the same request; nothing (0, as padding is there) before its first and after an
iteration without drafts. Log-probabilities are cut at -30, which there have no bound. NumPy alone.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.protocol import Candidates, Ints, Limits
from policies.features import Feature, Observation

LOWEST = -30.0
COPIES = 29
MOST_POSITION = 131.072


def path_table(limits: Limits) -> tuple[Feature, ...]:
    """The features in their order, N + 58 of them, N = `limits.max_candidates`."""
    scores = [
        Feature(
            f"path.score_{depth}_{rank}", "ln probability", LOWEST, 0.0, "the tree drafted last"
        )
        for depth in range(1, limits.max_depth + 1)
        for rank in range(1, limits.max_width ** min(depth, 2) + 1)
    ]
    position = Feature("", "1,000 tokens", 0.0, MOST_POSITION, "context_tokens")
    layers = Feature("", "10 layers", 0.0, limits.max_depth / 10, "the tree drafted last")
    return (
        *scores,
        *(position._replace(name=f"path.position_{i}") for i in range(1, COPIES + 1)),
        *(layers._replace(name=f"path.layers_{i}") for i in range(1, COPIES + 1)),
    )


def observe_paths(
    candidates: Candidates | None, slot: int, context_tokens: int, limits: Limits
) -> Observation:
    """float32 [N + 58], fresh: of a slot's tree among `candidates`, None where nothing was drafted.

    A narrower beam than the limits leave room for stands at the beginning of its layer.
    """
    out = np.zeros(limits.max_candidates + 2 * COPIES, np.float32)
    position = min(context_tokens / 1000, MOST_POSITION)
    out[limits.max_candidates : limits.max_candidates + COPIES] = position
    size = 0 if candidates is None else int(candidates.size[slot])
    if candidates is None or size == 0:
        return out
    depth = candidates.depth[slot, :size]
    first = np.searchsorted(depth, depth)  # candidates stand in order of depth
    places = _layer_starts(limits)[depth] + np.arange(size) - first
    with np.errstate(divide="ignore"):
        out[places] = np.maximum(np.log(candidates.probability[slot, :size]), LOWEST)
    out[limits.max_candidates + COPIES :] = (int(depth[-1]) - 1) / 10
    return out


@cache
def _layer_starts(limits: Limits) -> Ints:
    """[max_depth + 1] where the layer of each depth begins; to be read."""
    width = limits.max_width
    return np.array([0, 0, *(width + d * width**2 for d in range(limits.max_depth - 1))])
