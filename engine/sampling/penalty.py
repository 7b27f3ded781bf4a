"""Repetition penalty (Keskar et al. 2019): a token of the text so far becomes less likely.

The text of a node is the request's own up to the root, and then the node's ancestors and itself:
what other branches of the tree propose has no bearing on it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints


@njit(cache=True)
def penalise(
    levels: Floats,  # [n, vocabulary] logits, changed
    slot: Ints,  # [n]
    candidate: Ints,  # [n] the node that a row stands behind, -1 the root
    penalty: Floats,  # [S] 1 for none
    length: Ints,  # [S] tokens of the text, root included
    text: Ints,  # [S, capacity]
    parent: Ints,  # [S, N]
    token: Ints,  # [S, N]
) -> None:
    """Divide positive logits of seen tokens by the penalty, multiply negative ones."""
    marked = np.full(levels.shape[1], -1, np.int64)  # the last row that saw the token
    for i in range(len(slot)):
        s = slot[i]
        if penalty[s] == 1.0:
            continue
        for at in range(length[s]):
            _lower(levels, i, text[s, at], penalty[s], marked)
        node = candidate[i]
        while node >= 0:
            _lower(levels, i, token[s, node], penalty[s], marked)
            node = parent[s, node]


@njit(cache=True, error_model="numpy")
def _lower(levels: Floats, i: int, token: int, penalty: float, marked: Ints) -> None:
    if marked[token] == i:
        return
    marked[token] = i
    if levels[i, token] > 0:
        levels[i, token] /= penalty
    else:
        levels[i, token] *= penalty
