"""Path scores and position: what the policies of Learning-to-Draft see (arXiv 2603.01639).

Its size policy sees, of one request, the log-probability of every drafted path, layer by layer (W
of the first layer, W² of each further one), 29 times the position in thousands of tokens, and 29
times the layers drafted behind the first, in tens. That layout is this one, with the W and the
depth of the largest tree that may be drafted; for W = 10 and 13 layers it has the published 1,210 +
58 entries. Its depth policy's 128 are contained: the 100 of the latest layer, position and depth.

What differs is *when* they are seen. Learning-to-Draft asks its depth policy after each draft layer
and its size policy after the last, about the tree at hand. Here a decision falls between two
iterations, so it chooses depth, width and nodes at once, and what it sees is the tree that was
drafted last for the same request; nothing (0, as padding is there) before its first and after an
iteration without drafts.

And how: a layer's scores stand in falling order and are cut at LOWEST, where there they stand by
parent and have no bound; what a drafted layer has no node for is told as LOWEST. A recording has no
unlikely nodes but those of the beams, so replay shows what the live engine would, as long as a tree
has no more nodes above the cut than a plan may keep. NumPy alone.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.protocol import Candidates, Ints, Limits
from policies.actions import ActionTable
from policies.features import Feature, Observation

LOWEST = -5.0
"""ln 0.7 %: a path less likely is worth no node (ours)."""
COPIES = 29
MOST_POSITION = 131.072


def trees_of(table: ActionTable) -> Limits:
    """The largest trees that a table can ask for: what the layout has room for."""
    return Limits(1, max(table.depths[-1], 1), table.widths[-1], table.nodes[-1])


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

    What of a larger tree finds no room, because it is too deep or too far down in its layer, is
    left out.
    """
    most = limits.max_candidates
    out = np.zeros(most + 2 * COPIES, np.float32)
    out[most : most + COPIES] = min(context_tokens / 1000, MOST_POSITION)
    size = 0 if candidates is None else int(candidates.size[slot])
    if candidates is None or size == 0:
        return out
    depth, probability = candidates.depth[slot, :size], candidates.probability[slot, :size]
    order = np.lexsort((-probability, depth))
    depth = depth[order]
    starts = _layer_starts(limits)
    layers = min(int(depth[-1]), limits.max_depth)
    out[: starts[layers + 1]] = LOWEST
    places = starts[np.minimum(depth, layers)] + np.arange(size) - np.searchsorted(depth, depth)
    fits = (depth <= layers) & (places < starts[np.minimum(depth, layers) + 1])
    with np.errstate(divide="ignore"):
        scores = np.log(probability[order[fits]])
    out[places[fits]] = np.maximum(scores, LOWEST)
    out[most + COPIES :] = (layers - 1) / 10
    return out


@cache
def _layer_starts(limits: Limits) -> Ints:
    """[max_depth + 2] where the layer of each depth begins, and behind the last; to be read."""
    width = limits.max_width
    return np.array([0, 0, *(width + d * width**2 for d in range(limits.max_depth))])
