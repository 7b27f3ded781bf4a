"""What happens when memory is short: trees shrink before the step, and at last a request gives way.

Pure functions over a `PagePool`, which they only read. The loop asks in this order: do the roots
fit (`missing_for_roots`), who gives way until they do (`victim`), how large may the trees be
(`fit_plan`); then it reserves, and the step cannot run out of memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.kernels.lacking_pages import lacking_pages
from engine.orders import Key
from engine.paging import PagePool
from engine.protocol import Bools, Ints, Plan


def missing_for_roots(contexts: Ints, pool: PagePool, decoding: Bools) -> int:
    """Pages short of giving every decoding slot its root row, contexts [S]; 0 when all fit."""
    return max(_lacking(np.zeros_like(contexts), contexts, pool, decoding) - pool.free_pages, 0)


def fit_plan(plan: Plan, contexts: Ints, pool: PagePool, decoding: Bools) -> tuple[Plan, int]:
    """The plan whose trees fit in free pages, and how many nodes that cost.

    Every decoding request keeps its root row. A tree has no more nodes than its slot has rows
    behind the root. While the step needs more pages than are free, the
    largest tree (of equals the one in the highest slot) loses one node. Then each tree grows back
    towards its plan as far as the pages that it takes anyway have rows. A tree left without nodes
    is not drafted: its depth becomes 0. Where not even the roots fit, all trees are gone.

    The node caps returned are what to reserve, context + 1 + nodes tokens a slot: a cap above what
    the beam can score is lowered to that, uncounted. The batch's `node_budget` is not looked at,
    since where it goes is decided after drafting.
    """
    planned = np.where(decoding, np.minimum(plan.nodes, _scored(plan)), 0)
    nodes = np.minimum(planned, np.maximum(pool.tokens_per_slot - contexts - 1, 0))
    if missing_for_roots(contexts, pool, decoding):
        nodes = np.zeros_like(nodes)
    elif _lacking(nodes, contexts, pool, decoding) > pool.free_pages:
        shrunk = _shrunk(nodes, contexts, pool, decoding)
        taken = np.maximum(pool.owned, pool.pages_for(contexts + 1 + shrunk))
        nodes = np.clip(taken * pool.page_size - contexts - 1, shrunk, nodes)
    depth = np.where(decoding & (nodes == 0), 0, plan.depth)
    fitted = plan._replace(nodes=np.where(decoding, nodes, plan.nodes), depth=depth)
    return fitted, int((planned - nodes).sum())


def victim(places: Mapping[int, Key], pool: PagePool) -> int:
    """The slot that gives its pages back when not even the roots fit; -1 when there is none.

    Whoever is last in the engine's own order, `places` by slot being the keys under it: the lowest
    priority first, the latest deadline, or the newest request, as vLLM preempts under its orders. A
    slot without pages would give nothing. The first of several always stays, and a pool holds at
    least one whole request, so something always goes on.
    """
    candidates = [slot for slot in places if pool.owned[slot] > 0]
    if len(candidates) < 2:
        return -1
    return max(candidates, key=lambda slot: places[slot])


def _scored(plan: Plan) -> Ints:
    """Candidates [S] that a plan's beam scores at most: w at depth 1, w · w at each later one."""
    depth, width = np.asarray(plan.depth, np.int64), np.asarray(plan.width, np.int64)
    return np.where(depth > 0, width + (depth - 1) * width**2, 0)


def _lacking(nodes: Ints, contexts: Ints, pool: PagePool, decoding: Bools) -> int:
    """Sum of `_more_pages`."""
    total: int = lacking_pages(nodes, contexts, pool.owned, pool.page_size, decoding)
    return total


def _more_pages(nodes: Ints, contexts: Ints, pool: PagePool, decoding: Bools) -> Ints:
    """Pages [S] that slots lack for context, root and so many nodes."""
    return np.where(decoding, np.maximum(pool.pages_for(contexts + 1 + nodes) - pool.owned, 0), 0)


def _shrunk(wanted: Ints, contexts: Ints, pool: PagePool, decoding: Bools) -> Ints:
    """`wanted` after taking nodes from the largest trees one by one until the pages are there.

    Taking one by one is lowering a common ceiling, then taking the last few at the ceiling.
    """

    def pages(nodes: Ints) -> Ints:
        return _more_pages(nodes, contexts, pool, decoding)

    def lacking(nodes: Ints) -> int:
        return _lacking(nodes, contexts, pool, decoding)

    low, high = 0, int(wanted.max())  # the highest ceiling that fits is in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        fits = lacking(np.minimum(wanted, middle)) <= pool.free_pages
        low, high = (middle, high) if fits else (low, middle)
    above, below = np.minimum(wanted, low + 1), np.minimum(wanted, low)
    over = lacking(above) - pool.free_pages
    # From the highest slot down, until what they give up covers what is over.
    gives = pages(above) - pages(below)
    given_before = np.cumsum(gives[::-1])[::-1] - gives
    return np.where(given_before >= over, above, below)
