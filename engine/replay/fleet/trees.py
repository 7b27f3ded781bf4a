"""A plan's trees looked up: what of a place is kept, under a budget of the batch too.

A place's nodes stand in the order in which the engine ranks them, so a plan's tree is one scan: the
first `nodes` of those that are not too deep and that a beam of the plan's width has scored
(ALGORITHMS.md §11). The book knows which of a place's nodes are the text's own path; a parent
stands before its children, so what the scan has seen of them is how far the target goes.
"""

from __future__ import annotations

from numba import njit

from engine.kernels.inner import BORROWED, INNER
from engine.protocol import Floats, Ints
from engine.replay.fleet.state import Book, Record, Scratch
from engine.replay.lookup import ranked
from engine.replay.recording import ROOT

SPREAD = 40503  # odd: trees of one place, and a tree's at neighbouring places, stand apart
DEEPEST = 15  # for which an entry of the memo has room; default recordings have depths to 8
HALVINGS = 8  # of the interval that holds a budget's bound, before the last nodes are counted out


@njit(**INNER)
def is_drafted(book: Book, i: int, depth: int, width: int) -> bool:
    """Whether a tree of that depth and width has node i of the recording."""
    shape = int(book.shape[i])
    return (shape >> 8 & 255 <= depth) & (shape >> (width - 1) & 1 == 1)


@njit(**BORROWED)
def look_up(slot: Record, book: Book, memo: Ints) -> tuple[int, int]:
    """Of the slot's tree: nodes kept, and the depth of the deepest; `path` is written.

    A tree that was looked up before stands in the memo: place, depth, width and nodes in its upper
    47 bits, what was found in its lower 16.
    """
    if slot.depth > DEEPEST:
        kept, deepest, slot.path = _scan(slot, book)
        return kept, deepest
    tree = slot.depth << 11 | (slot.width - 1) << 8 | min(slot.nodes, ROOT)
    key = slot.place << 15 | tree
    at = (slot.place + SPREAD * tree) & (len(memo) - 1)
    if memo[at] >> 16 != key:
        kept, deepest, path = _scan(slot, book)
        memo[at] = key << 16 | kept << 8 | deepest << 4 | path
    found = memo[at]
    slot.path = found & 15
    return found >> 8 & 255, found >> 4 & 15


@njit(**INNER)
def _scan(slot: Record, book: Book) -> tuple[int, int, int]:
    """Of the slot's tree: nodes kept, the depth of the deepest, and how far the target goes."""
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
    return kept, deepest, path


@njit(**BORROWED)
def share_budget(slots: Record, budget: int, book: Book, scratch: Scratch) -> None:
    """Lower `nodes` of slots [S] to what each keeps of the batch's `budget` likeliest nodes.

    Of equals the shallower, then that of the lower slot (`engine.kernels.select.keep_best`). Each
    slot's tree falls in probability. So all that are likelier than a bound are taken at once, as
    long as they are not too many, and only the last few one at a time. `scratch` has the slots'
    nodes one after the other, as many for each: their path probability, -1 behind a tree's last.
    """
    count, longest = len(slots), 1
    for s in range(count):
        longest = max(longest, slots[s].nodes)
    chance = scratch.chance[: count * longest]
    chance[:] = -1.0
    for s in range(count):
        if slots[s].nodes > 0:
            _line_up(slots[s], s * longest, scratch, book)
    bound, left = _bound(chance, budget)
    for s in range(count):
        taken = 0
        for i in range(s * longest, (s + 1) * longest):
            taken += int(chance[i] >= bound)
        slots[s].nodes = taken
    for _ in range(left):
        best = -1
        for s in range(count):
            at = s * longest + slots[s].nodes
            if slots[s].nodes == longest or chance[at] < 0:
                continue
            if best < 0 or _goes_before(at, best, scratch):
                best = at
        if best < 0:
            return
        slots[best // longest].nodes += 1


@njit(**INNER, error_model="numpy")
def _line_up(slot: Record, start: int, scratch: Scratch, book: Book) -> None:
    """Write the nodes of the slot's tree to `chance` and `depth`, from `start` on.

    Path probabilities are multiplied up from the root, as beams have them: `paths` has them and the
    recorded ones of the place's nodes so far.
    """
    paths = scratch.paths
    first, end = book.first_node[slot.place], book.first_node[slot.place + 1]
    depth, width, at, last = slot.depth, slot.width, start, start + slot.nodes
    for i in range(first, end):
        if at == last:
            return
        if is_drafted(book, i, depth, width):
            above = int(book.shape[i] >> 16)
            recorded = ranked(book.probability[i], i - first)
            chance = recorded
            if above != ROOT:
                chance = paths[0, above] * (recorded / paths[1, above])
            paths[0, i - first], paths[1, i - first] = chance, recorded
            scratch.chance[at], scratch.depth[at] = chance, book.shape[i] >> 8 & 255
            at += 1


@njit(**INNER)
def _bound(chance: Floats, budget: int) -> tuple[float, int]:
    """A probability that at most `budget` nodes reach, and how many more there is room for."""
    low, high, left = 0.0, 2.0, max(budget, 0)  # no node reaches 2
    for _ in range(HALVINGS):
        middle, reach = (low + high) / 2, 0
        for i in range(len(chance)):
            reach += int(chance[i] >= middle)
        if reach > budget:
            low = middle
        else:
            high, left = middle, budget - reach
        if left == 0:
            break
    return high, left


@njit(**INNER)
def _goes_before(a: int, b: int, line: Scratch) -> bool:
    """Whether node a of those in line is taken before node b, of a lower slot."""
    if line.chance[a] != line.chance[b]:
        return line.chance[a] > line.chance[b]
    return line.depth[a] < line.depth[b]
