"""Kernels that draw a beam's children by the model, and say which of them the text accepts.

Live arrays of one replica; who grows the trees of them is `engine.kernels.union_beam`'s business.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.beam import BeamState
from engine.protocol import Bools, Floats, Ints
from engine.state import TreeState

LEAST = 1e-6  # of q1: a child that the drafter offers has some probability


@njit(cache=True, error_model="numpy")
def draw_children(
    step: int,
    mean: Floats,  # [n] of q1 at this depth, by slot from 0 on
    odds_factor: float,
    siblings: Floats,  # [W - 1]
    top: Floats,  # [n, B] uniforms of q1, by place in the beam
    rank: Floats,  # [n] uniforms by which the text's token is found among the children
    target: Ints,  # [n] the text's token at this depth, -1 behind its end
    vocab_size: int,
    trees: TreeState,
    beam: BeamState,
    on_path: Bools,  # [S, N]
    child_token: Ints,  # [1, S, B, W], written
    child_probability: Floats,  # [1, S, B, W], written: as shown
) -> None:
    """Write W children of every beam node of n slots, best first.

    Tokens are made up; siblings differ, and one is the text's where its parent is on the path and
    the text's token is among the guesses.
    """
    widest = child_token.shape[3]
    q = np.empty(widest)
    for s in range(len(mean)):
        power = (1.0 - mean[s]) / mean[s]
        for p in range(1 if step == 1 else beam.size[0, s]):
            _share_out(top[s, p] ** power, siblings, q)
            right = -1
            if target[s] >= 0 and (step == 1 or on_path[s, beam.candidate[0, s, p]]):
                total = 0.0
                for k in range(widest):
                    total += q[k]
                    if rank[s] < total:
                        right = k
                        break
            _share_out(top[s, p] ** (power / odds_factor), siblings, q)
            for k in range(widest):
                child_probability[0, s, p, k] = q[k]
                other = (max(target[s], 0) + 1 + k) % vocab_size
                child_token[0, s, p, k] = target[s] if k == right else other


@njit(cache=True)
def _share_out(best: float, siblings: Floats, q: Floats) -> None:
    """Probabilities of a node's children, best first: each takes its share of what is left."""
    q[0] = max(best, LEAST)
    left = 1.0 - q[0]
    for k in range(1, len(q)):
        q[k] = min(q[k - 1], left * siblings[k - 1])
        left -= q[k]


@njit(cache=True)
def mark_path(
    step: int,
    target: Ints,  # [n]
    trees: TreeState,
    on_path: Bools,  # [S, N], written for the nodes of depth `step`
    log_ratio: Floats,  # [S, N], likewise: 0 on the path, else -inf: the target was not asked
) -> None:
    """Find the text among the nodes that were just appended."""
    for s in range(len(target)):
        for i in range(trees.size[0, s]):
            if trees.depth[0, s, i] == step:
                parent = trees.parent[0, s, i]
                on_path[s, i] = trees.token[0, s, i] == target[s] and (
                    parent < 0 or on_path[s, parent]
                )
                log_ratio[s, i] = 0.0 if on_path[s, i] else -np.inf
