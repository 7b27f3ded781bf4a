"""AdaServe's selection: nodes for each request's goal first, then the likeliest of the whole batch.

Path probability falls along a path, so the likeliest nodes of a request are a tree; of equals the
one drafted first goes first, which keeps that true when probabilities tie. Each slot's candidates
lie in a heap, so no more of them is ever sorted than is taken. Whose goals these are, in which
order they are served and what the budget is, the controllers decide (`policies.adaserve`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def slo_select(
    order: Ints,
    goal: Floats,
    most_to_goal: int,
    most: Ints,
    width: Ints,
    budget: int,
    deepest: int,
    size: Ints,
    depth: Ints,
    probability: Floats,
) -> tuple[Bools, Floats]:
    """Which candidates to verify [S, N], and the expected tokens of each slot [S], bonus included.

    The slots in `order`, one after another, take their likeliest candidates until 1 + Σf reaches
    `goal` [S], but at most `most_to_goal`; then the likeliest of all are taken while any is left of
    `budget`, the nodes over the batch, roots not counted. A slot never takes more than `most` [S].
    Of each of the layers 1..`deepest` only the `width` [S] likeliest are candidates, which is what
    a beam of that width keeps. `size` [S], `depth` and `probability` [S, N] are those of
    `engine.protocol.Candidates`. Slots that are not in `order` get nothing.
    """
    slots, most_candidates = probability.shape
    kept = np.zeros((slots, most_candidates), np.bool_)
    expected = np.ones(slots)
    used = np.zeros(slots, np.int64)
    heaps = np.empty((slots, most_candidates), np.int64)
    left = np.zeros(slots, np.int64)  # candidates in each heap
    seen = np.zeros((slots, deepest + 1), np.int64)  # that left the heap, by layer
    best = np.full(slots, -1, np.int64)  # next node of each slot, -1 where there is none
    chance = np.zeros(slots)  # its path probability
    for s in order:
        left[s] = size[s]
        for i in range(size[s]):
            heaps[s, i] = i
        for place in range(size[s] // 2 - 1, -1, -1):
            _sink(heaps[s], left[s], place, probability[s])
        _advance(s, heaps, left, seen, width, depth, probability, best, chance)

    for s in order:
        room = min(most_to_goal, most[s])
        while budget > 0 and used[s] < room and best[s] >= 0 and expected[s] < goal[s]:
            kept[s, best[s]] = True
            expected[s] += chance[s]
            used[s] += 1
            budget -= 1
            _advance(s, heaps, left, seen, width, depth, probability, best, chance)

    waiting = np.empty(slots, np.int64)  # heap of slots by what they would take next
    count = 0
    for s in order:
        if best[s] >= 0 and used[s] < most[s]:
            waiting[count] = s
            count += 1
    for place in range(count // 2 - 1, -1, -1):
        _sink(waiting, count, place, chance)
    while budget > 0 and count > 0:
        s = waiting[0]
        kept[s, best[s]] = True
        expected[s] += chance[s]
        used[s] += 1
        budget -= 1
        _advance(s, heaps, left, seen, width, depth, probability, best, chance)
        if best[s] < 0 or used[s] >= most[s]:
            count -= 1
            waiting[0] = waiting[count]
        if count > 0:
            _sink(waiting, count, 0, chance)
    return kept, expected


@njit(cache=True)
def _advance(
    s: int,
    heaps: Ints,
    left: Ints,
    seen: Ints,
    width: Ints,
    depth: Ints,
    probability: Floats,
    best: Ints,
    chance: Floats,
) -> None:
    """Let the likeliest node of slot s that its beam keeps leave the heap, as `best` [S]."""
    best[s] = -1
    while left[s] > 0 and best[s] < 0:
        node = heaps[s, 0]
        left[s] -= 1
        heaps[s, 0] = heaps[s, left[s]]
        if left[s] > 0:
            _sink(heaps[s], left[s], 0, probability[s])
        layer = depth[s, node]
        seen[s, layer] += 1
        if seen[s, layer] <= width[s]:
            best[s] = node
            chance[s] = probability[s, node]


@njit(cache=True)
def _sink(heap: Ints, count: int, place: int, chance: Floats) -> None:
    """Move the item at `place` down a heap of `count`: largest chance on top, then lowest index."""
    item = heap[place]
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and _before(heap[child + 1], heap[child], chance):
            child += 1
        if not _before(heap[child], item, chance):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = item


@njit(cache=True)
def _before(one: int, other: int, chance: Floats) -> bool:
    """Whether item `one` goes before the other."""
    return chance[one] > chance[other] or (chance[one] == chance[other] and one < other)
