"""A plan's trees looked up: what of a place is kept, under a budget of the batch too.

A place's nodes stand in the order in which the engine ranks them, so a plan's tree is one scan: the
first `nodes` of those that are not too deep and that a beam of the plan's width has scored
(ALGORITHMS.md §11). The target's path through it is found on the way, since a parent stands before
its children.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats
from engine.replay.fleet.state import Book, Record
from engine.replay.lookup import ranked
from engine.replay.recording import ROOT


@njit(cache=True)
def is_drafted(node: Record, slot: Record) -> bool:
    """Whether a tree of the slot's depth and width has the recorded node."""
    return node.depth <= slot.depth and (node.widths >> (slot.width - 1)) & 1 == 1


@njit(cache=True)
def look_up(slot: Record, book: Book) -> tuple[int, int]:
    """Of the slot's tree: nodes kept, and the depth of the deepest; `path` is written."""
    first, end = book.first_node[slot.place], book.first_node[slot.place + 1]
    kept = deepest = path = 0
    end_of_path = ROOT
    wanted = book.tokens[slot.following]
    for i in range(first, end):
        if kept == slot.nodes:
            break
        node = book.nodes[i]
        if not is_drafted(node, slot):
            continue
        kept += 1
        deepest = max(deepest, int(node.depth))
        if node.parent == end_of_path and node.token == wanted:
            path += 1
            wanted = book.tokens[slot.following + path]
            end_of_path = i - first
    slot.path = path
    return kept, deepest


@njit(cache=True)
def confidence(slot: Record, book: Book) -> float:
    """The drafter's probability of its best guess, -1 where it had none."""
    first = book.first_node[slot.place]
    return _ranked(book, first, first) if first < book.first_node[slot.place + 1] else -1.0


@njit(cache=True)
def share_budget(slots: Record, budget: int, book: Book) -> None:
    """Lower `nodes` of slots [S] to what each keeps of the batch's `budget` likeliest nodes.

    Each slot's tree falls in probability, so the likeliest of the heads is always next; of equals
    the shallower, then that of the lower slot (`engine.kernels.select.keep_best`).
    """
    count = len(slots)
    head = np.full(count, -1)  # recorded node that is next, -1 behind the last
    # Path probability of every node that was a head, multiplied up from the root as beams are.
    path = np.empty((count, ROOT + 1))
    taken = np.zeros(count, np.int64)
    for s in range(count):
        if slots[s].nodes > 0:
            head[s] = _next_head(slots[s], book.first_node[slots[s].place], book, path[s])
    for _ in range(max(budget, 0)):
        best, likeliest = -1, -1.0
        for s in range(count):
            if head[s] < 0:
                continue
            chance = path[s, head[s] - book.first_node[slots[s].place]]
            if chance > likeliest or (
                chance == likeliest and book.nodes[head[s]].depth < book.nodes[head[best]].depth
            ):
                best, likeliest = s, chance
        if best < 0:
            break
        taken[best] += 1
        if taken[best] == slots[best].nodes:
            head[best] = -1
        else:
            head[best] = _next_head(slots[best], head[best] + 1, book, path[best])
    for s in range(count):
        slots[s].nodes = taken[s]


@njit(cache=True, error_model="numpy")
def _next_head(slot: Record, start: int, book: Book, path: Floats) -> int:
    """The slot's first drafted node from `start` on, its `path` written; -1 where there is none."""
    first, end = book.first_node[slot.place], book.first_node[slot.place + 1]
    for i in range(start, end):
        if not is_drafted(book.nodes[i], slot):
            continue
        above = int(book.nodes[i].parent)
        if above == ROOT:
            path[i - first] = _ranked(book, first, i)
        else:
            given_parent = _ranked(book, first, i) / _ranked(book, first, first + above)
            path[i - first] = path[above] * given_parent
        return i
    return -1


@njit(cache=True)
def _ranked(book: Book, first: int, i: int) -> float:
    """Path probability of node i, as `engine.replay.lookup` ranks it."""
    return ranked(book.nodes[i].probability, i - first)
