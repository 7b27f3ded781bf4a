"""Which candidates to verify: the best by path probability, under caps a request and a batch.

Path probability falls along a path, so the best N form a tree (closed under parents). Ties go to
the shallower node, then to the one drafted first, which keeps that true when probabilities tie.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Ints
from engine.state import TreeState


@njit(cache=True)
def rank_candidates(decoding: Bools, trees: TreeState) -> None:
    """Fill `trees.rank`: 0 for the likeliest candidate of a slot."""
    replicas, slots, _ = trees.parent.shape
    for r in range(replicas):
        for s in range(slots):
            if decoding[r, s]:
                # Candidates stand in order of depth, so a stable sort breaks ties as stated.
                count = trees.size[r, s]
                order = np.argsort(-trees.probability[r, s, :count], kind="mergesort")
                for place in range(count):
                    trees.rank[r, s, order[place]] = place


@njit(cache=True)
def keep_best(decoding: Bools, nodes: Ints, budget: Ints, trees: TreeState) -> Ints:
    """Keep each slot's `nodes` best, at most `budget` over a replica; returns nodes dropped [R].

    When the budget binds, nodes are taken in order of path probability over the whole batch.
    """
    replicas, slots, _ = trees.parent.shape
    dropped = np.zeros(replicas, np.int64)
    for r in range(replicas):
        total = 0
        for s in range(slots):
            for i in range(trees.parent.shape[2]):
                real = decoding[r, s] and i < trees.size[r, s]
                inside = real and trees.rank[r, s, i] < nodes[r, s]
                trees.kept[r, s, i] = inside
                total += inside
        if total > budget[r]:
            dropped[r] = total - max(budget[r], 0)
            _shrink(r, budget[r], total, trees)
    return dropped


@njit(cache=True)
def _shrink(r: int, budget: int, total: int, trees: TreeState) -> None:
    """Leave only the `budget` likeliest kept nodes of replica r."""
    slots, most = trees.kept.shape[1:]
    probability = np.empty(total)
    where = np.empty(total, np.int64)
    n = 0
    # Depth first, then slot and index: a stable sort then never puts a child before its parent.
    for depth in range(1, trees.depth[r].max() + 1):
        for s in range(slots):
            for i in range(trees.size[r, s]):
                if trees.kept[r, s, i] and trees.depth[r, s, i] == depth:
                    probability[n] = trees.probability[r, s, i]
                    where[n] = s * most + i
                    n += 1
    for place in np.argsort(-probability[:n], kind="mergesort")[max(budget, 0) :]:
        trees.kept[r, where[place] // most, where[place] % most] = False


@njit(cache=True)
def close_under_parents(decoding: Bools, nodes: int, trees: TreeState) -> Ints:
    """Drop kept nodes that lack their parent or exceed `nodes` a slot; how many, by replica."""
    replicas, slots, most = trees.parent.shape
    dropped = np.zeros(replicas, np.int64)
    for r in range(replicas):
        for s in range(slots):
            used = 0
            for i in range(most):
                if not trees.kept[r, s, i]:
                    continue
                above = trees.parent[r, s, i]
                orphan = above >= 0 and not trees.kept[r, s, above]
                unreal = not decoding[r, s] or i >= trees.size[r, s]
                if unreal or orphan or used >= nodes:
                    trees.kept[r, s, i] = False
                    dropped[r] += not unreal
                else:
                    used += 1
    return dropped
