"""The tree shapes that are worth their time before anything is drafted: a sweep over the budget.

What a node will bring is forecast (`policies.forecast`), what it costs is tabulated
(`engine.protocol.PriceTable`). For a beam width and a deepest layer, nodes are taken the most
valuable first, and after each the value of the step over its price is noted:

    (Σ u of the roots + Σ value of the nodes taken) / (t + λ · joules)

A request that gets a node in a layer drafts down to it, so every layer is paid for by those alone
who draft it. The best of all prefixes, depths and widths wins, ordinary decoding among them.

A walk ends once no later prefix can win: with m the least that a node costs from here on
(`engine.kernels.least_price`), k more of value v or less make (G + Σ) / (T + price) no more than
(G + k · v) / (T + k · m), which is at most the best found where v is at most m times that. Under a
power cap some prefixes do not count, so the best says nothing of them, and a walk goes on.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.descending import descending
from engine.kernels.least_price import least_price
from engine.protocol import Floats, Ints


@njit(cache=True, error_model="numpy")
def sweep_shapes(
    value: Floats,  # [S, D, W] of the node of each rank in each layer, 0 for none
    base: float,  # of all roots together
    widths: Ints,  # beams to try, ascending, none above W
    verify_s: Floats,  # [K + 1] roots and 0..K nodes
    verify_joules: Floats,  # [K + 1]
    first_s: Floats,  # [2] first draft step: whoever drafts, and each row
    next_s: Floats,  # [len(widths), S + 1] further draft step of 0..S requests
    draft_watts: float,
    first_rows: Floats,  # [S] rows of each request in the first draft step
    most: Ints,  # [S] nodes that a request may get
    joule_s: float,  # λ, seconds that a joule is worth
    cap_watts: float,
) -> tuple[float, int, int, Ints, Ints]:
    """Value over price, width, nodes in all, and per slot depth [S] and nodes [S].

    Width and nodes 0 are ordinary decoding. Values fall with the rank and with the layer. A step
    that draws more than `cap_watts` on average is passed over, ordinary decoding excepted.
    """
    slots = len(value)
    depth = np.zeros(slots, np.int64)
    nodes = np.zeros(slots, np.int64)
    price = verify_s + joule_s * verify_joules
    least = least_price(price)
    if cap_watts < np.inf:  # a prefix above the cap does not count, and one behind it may
        least[:] = 0.0
    best = base / price[0]
    best_at, best_width, best_layers, best_taken = -1, 0, 0, 0
    longest = len(verify_s) - 1
    order = _in_order(value, widths[-1], best * least.min())
    deepest = 0
    for layer in order[2]:
        deepest = max(deepest, layer + 1)
    for at in range(len(widths)):
        for layers in range(1, deepest + 1):
            ratio, taken, is_cut = _walk(
                order, widths[at], layers, longest, best, least, base, verify_s, verify_joules,
                first_s, next_s[at], draft_watts, first_rows, most, joule_s, cap_watts, depth,
                nodes,
            )  # fmt: skip
            if ratio > best:
                best, best_at, best_width = ratio, at, widths[at]
                best_layers, best_taken = layers, taken
            if not is_cut:
                break  # with more layers the walk would be the same
    depth[:] = 0
    nodes[:] = 0
    if best_at >= 0:
        _walk(
            order, best_width, best_layers, best_taken, 0.0, np.zeros_like(least), base, verify_s,
            verify_joules, first_s, next_s[best_at], draft_watts, first_rows, most, joule_s,
            cap_watts, depth, nodes,
        )  # fmt: skip
    return best, best_width, best_taken, depth, nodes


@njit(cache=True)
def _in_order(value: Floats, width: int, above: float) -> tuple[Floats, Ints, Ints, Ints]:
    """Value, slot, layer and rank of all nodes of a beam, the most valuable first.

    Those worth `above` or less are left out.
    """
    slots, deepest, ranks = value.shape
    worth = np.empty(value.size)
    place = np.empty((3, value.size), np.int64)
    count = 0
    for s in range(slots):
        for layer in range(deepest):
            for rank in range(min(width, ranks)):
                if value[s, layer, rank] > max(above, 0.0):
                    worth[count] = value[s, layer, rank]
                    place[0, count], place[1, count], place[2, count] = s, layer, rank
                    count += 1
    order = descending(worth[:count])
    return worth[order], place[0, order], place[1, order], place[2, order]


@njit(cache=True, error_model="numpy")
def _walk(
    order: tuple[Floats, Ints, Ints, Ints],
    width: int,
    layers: int,
    longest: int,
    known: float,
    least: Floats,
    base: float,
    verify_s: Floats,
    verify_joules: Floats,
    first_s: Floats,
    next_s: Floats,
    draft_watts: float,
    first_rows: Floats,
    most: Ints,
    joule_s: float,
    cap_watts: float,
    depth: Ints,
    nodes: Ints,
) -> tuple[float, int, bool]:
    """The best value over price, after how many nodes, and whether deeper ones were passed over.

    Takes at most `longest` nodes of at most `layers` layers and `width` ranks, and may end where
    nothing better than `known` is left. `depth` and `nodes` [S] are as they stand at the end.
    """
    worth, of_slot, of_layer, of_rank = order
    depth[:] = 0
    nodes[:] = 0
    drafting = np.zeros(layers, np.int64)  # requests by layer
    rows, further_s, gained = 0.0, 0.0, 0.0
    taken, best_taken = 0, 0
    best, is_cut = -1.0, False
    for at in range(len(worth)):
        if taken >= longest or worth[at] <= max(best, known) * least[taken]:
            break
        s, layer = of_slot[at], of_layer[at]
        if of_rank[at] >= width or layer > depth[s] or nodes[s] >= most[s]:
            continue
        if layer >= layers:
            is_cut = True
            continue
        if layer == depth[s]:  # the first of its layer
            depth[s] += 1
            if layer == 0:
                rows += first_rows[s]
            else:
                further_s += next_s[drafting[layer] + 1] - next_s[drafting[layer]]
            drafting[layer] += 1
        nodes[s] += 1
        taken += 1
        gained += worth[at]
        draft_s = first_s[0] + first_s[1] * rows + further_s
        seconds = verify_s[taken] + draft_s
        joules = verify_joules[taken] + draft_watts * draft_s
        if joules <= cap_watts * seconds:
            ratio = (base + gained) / (seconds + joule_s * joules)
            if ratio > best:
                best, best_taken = ratio, taken
    return best, best_taken, is_cut
