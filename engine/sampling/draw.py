"""The draw itself: the token with the largest score s(v) = level + temperature · noise.

By the Gumbel-max trick its law is the softmax of levels / temperature over the support. The same
scores tell by how much a drafted token misses the drawn one, which is what a margin judges
(ALGORITHMS.md section 3). Levels are logits after the penalty; the log-softmax differs from them by
a constant a row, which cancels in both uses.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from engine.protocol import Bools, Floats, Ints
from engine.sampling.noise import gumbel, stream, uniform

# Most numbers lie below this one, where the noise is at most GUMBEL_OFTEN: a token whose level is
# that far behind loses before a logarithm has to be taken.
OFTEN = 0.98
GUMBEL_OFTEN = float(-np.log(-np.log(OFTEN)))


@njit(cache=True, parallel=True)
def draw(
    levels: Floats,  # [n, vocabulary]
    floor: Floats,  # [n] lowest level of the support
    temperature: Floats,  # [n] rows of temperature 0 are left as they are
    seed: Ints,  # [n]
    position: Ints,  # [n] output position that the drawn token takes, 0 for the first
    token: Ints,  # [n], written
    score: Floats,  # [n], written: s of that token
) -> None:
    """Draw a token for every row by keyed noise; ties go to the lower token."""
    for i in prange(len(token)):
        if temperature[i] > 0.0:
            state = stream(seed[i], position[i])
            token[i], score[i] = _draw_one(levels[i], floor[i], temperature[i], state, token[i])


@njit(cache=True)
def _draw_one(
    levels: Floats, floor: float, temperature: float, state: np.uint64, likeliest: int
) -> tuple[int, float]:
    """The winner among a row's tokens from `floor` on, and its score; noise for no other token."""
    best, token = -np.inf, likeliest
    for v in range(len(levels)):
        level = levels[v]
        if level < floor:
            continue
        u = uniform(state, v)
        if u < OFTEN and level + temperature * GUMBEL_OFTEN <= best:
            continue
        s = level + temperature * gumbel(u)
        if s > best:
            best, token = s, v
    return token, best


@njit(cache=True)
def log_ratios(
    levels: Floats,  # [n, vocabulary]
    floor: Floats,  # [n] lowest level that may be let through
    temperature: Floats,  # [n]
    seed: Ints,  # [n]
    position: Ints,  # [n]
    score: Floats,  # [n] s of the token that was chosen
    slot: Ints,  # [n]
    candidate: Ints,  # [n] the node that a row stands behind, -1 the root
    kept: Bools,  # [S, N]
    parent: Ints,  # [S, N]
    token: Ints,  # [S, N]
    log_ratio: Floats,  # [S, N], written for kept children of the rows' nodes
) -> None:
    """s(child) - s(chosen) for every kept child of every row, -inf below the floor."""
    for i in range(len(slot)):
        s = slot[i]
        state = stream(seed[i], position[i])
        for c in range(candidate[i] + 1, kept.shape[1]):
            if not kept[s, c] or parent[s, c] != candidate[i]:
                continue
            level = levels[i, token[s, c]]
            if level < floor[i]:
                log_ratio[s, c] = -np.inf
                continue
            if temperature[i] > 0.0:
                level += temperature[i] * gumbel(uniform(state, token[s, c]))
            log_ratio[s, c] = level - score[i]
