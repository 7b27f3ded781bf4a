"""A plan's trees looked up: what of a place is kept, under a budget of the batch too.

A place's nodes stand in the order in which the engine ranks them, so a plan's tree is one scan: the
first `nodes` of those that are not too deep and that a beam of the plan's width has scored
(ALGORITHMS.md §11). The book knows which of a place's nodes are the text's own path; a parent
stands before its children, so what the scan has seen of them is how far the target goes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints
from engine.replay.fleet.costs import Whole
from engine.replay.fleet.state import Book, Record
from engine.replay.lookup import ranked
from engine.replay.recording import ROOT


@njit(cache=True)
def is_drafted(book: Book, i: int, depth: int, width: int) -> bool:
    """Whether a tree of that depth and width has node i of the recording."""
    shape = int(book.shape[i])
    return (shape >> 8 & 255 <= depth) & (shape >> (width - 1) & 1 == 1)


@njit(cache=True)
def look_up(slot: Record, book: Book) -> tuple[int, int]:
    """Of the slot's tree: nodes kept, and the depth of the deepest; `path` is written."""
    first, end = book.first_node[slot.place], book.first_node[slot.place + 1]
    depth, width, nodes = slot.depth, slot.width, slot.nodes
    kept, deepest, i = 0, 0, first
    while i < end and kept < nodes:
        is_kept = int(is_drafted(book, i, depth, width))  # no branch: nobody could predict it
        kept += is_kept
        deepest = max(deepest, is_kept * int(book.shape[i] >> 8 & 255))
        i += 1
    path, behind = 0, i - first
    while book.on_path[slot.place, path] < behind and is_drafted(
        book, first + book.on_path[slot.place, path], depth, width
    ):
        path += 1
    slot.path = path
    return kept, deepest


@njit(cache=True)
def confidence(slot: Record, book: Book) -> float:
    """The drafter's probability of its best guess, -1 where it had none."""
    first = book.first_node[slot.place]
    return _ranked(book, first, first) if first < book.first_node[slot.place + 1] else -1.0


class Heads(NamedTuple):
    """The likeliest nodes that slots [S] have not got yet."""

    node: Ints  # [S] of the recording
    chance: Floats  # [S] its path probability
    path: Floats  # [S, ROOT + 1] that of every node that was a head, by its place among the place's


@njit(cache=True)
def share_budget(slots: Record, budget: int, book: Book) -> None:
    """Lower `nodes` of slots [S] to what each keeps of the batch's `budget` likeliest nodes.

    Each slot's tree falls in probability, so the likeliest of the heads is always next; of equals
    the shallower, then that of the lower slot (`engine.kernels.select.keep_best`).
    """
    count = len(slots)
    heads = Heads(np.empty(count, np.int64), np.empty(count), np.empty((count, ROOT + 1)))
    line = np.empty(count, np.int64)  # slots with a head; whose is the likeliest stands last
    taken = np.zeros(count, np.int64)
    length = 0
    for s in range(count):
        if slots[s].nodes > 0 and _go_on(slots[s], s, book.first_node[slots[s].place], book, heads):
            line[length] = s
            length += 1
            _make_way(np.int64(length), line, book, heads)
    for _ in range(max(budget, 0)):
        if length == 0:
            break
        s = line[length - 1]
        taken[s] += 1
        if taken[s] < slots[s].nodes and _go_on(slots[s], s, heads.node[s] + 1, book, heads):
            _make_way(np.int64(length), line, book, heads)
        else:
            length -= 1
    for s in range(count):
        slots[s].nodes = taken[s]


@njit(cache=True, error_model="numpy")
def _go_on(slot: Record, s: int, start: int, book: Book, heads: Heads) -> bool:
    """Make the first drafted node from `start` on the head of slot s; False where there is none.

    Path probabilities are multiplied up from the root, as beams have them.
    """
    first, end = book.first_node[slot.place], book.first_node[slot.place + 1]
    depth, width, path = slot.depth, slot.width, heads.path[s]
    for i in range(start, end):
        if is_drafted(book, i, depth, width):
            above = int(book.shape[i] >> 16)
            chance = _ranked(book, first, i)
            if above != ROOT:
                chance = path[above] * (chance / _ranked(book, first, first + above))
            heads.node[s], heads.chance[s], path[i - first] = i, chance, chance
            return True
    return False


@njit(cache=True)
def _make_way(length: Whole, line: Ints, book: Book, heads: Heads) -> None:
    """Move the last of the line's `length` slots to where it belongs among the others."""
    at, s = length - 1, line[length - 1]
    while at > 0 and _goes_before(line[at - 1], s, book, heads):
        line[at] = line[at - 1]
        at -= 1
    line[at] = s


@njit(cache=True)
def _goes_before(a: int, b: int, book: Book, heads: Heads) -> bool:
    """Whether the head of slot a is taken before that of slot b."""
    if heads.chance[a] != heads.chance[b]:
        return heads.chance[a] > heads.chance[b]
    depth_a, depth_b = book.shape[heads.node[a]] >> 8 & 255, book.shape[heads.node[b]] >> 8 & 255
    return depth_a < depth_b or (depth_a == depth_b and a < b)


@njit(cache=True)
def _ranked(book: Book, first: int, i: int) -> float:
    """Path probability of node i, as `engine.replay.lookup` ranks it."""
    return ranked(book.probability[i], i - first)
