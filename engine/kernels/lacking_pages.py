"""How many pages a step lacks: asked several times an iteration, mostly to hear that none are."""

from __future__ import annotations

from numba import njit

from engine.protocol import Bools, Ints


@njit(cache=True)
def lacking_pages(nodes: Ints, contexts: Ints, owned: Ints, page_size: int, decoding: Bools) -> int:
    """Pages [sum over S] that decoding slots need beyond those they own.

    A slot needs room for its context, its root and so many nodes.
    """
    total = 0
    for s in range(len(decoding)):
        if decoding[s]:
            needs = -(-(contexts[s] + 1 + nodes[s]) // page_size)
            total += max(needs - owned[s], 0)
    return total
