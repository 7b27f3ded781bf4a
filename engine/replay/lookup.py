"""Trees and texts looked up in a recording: the kernels of the replay backend.

A draft step is one scan over the nodes of the slot's place. What the engine loop makes of its
answers are the live engine's own trees, as far as they were recorded: every node that a plan may
keep is there, and so is every node of its beams.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.backends.protocol import Choices
from engine.kernels.beam import BeamState
from engine.kernels.inner import INNER
from engine.protocol import Bools, Floats, Ints, Limits
from engine.replay.recording import ROOT, Recording
from engine.state import TreeState

# Recorded probabilities are rounded, so two that differed for the live engine may be equal. Their
# place in the recording's order breaks the tie, by so little that no two others come near.
TIE = 1e-12
LEAST = 1e-46  # below every float32: a node that was scored is one, however unlikely


class Book(NamedTuple):
    """What the kernels read of a recording: N texts, P places, M nodes."""

    first_output: Ints  # [N] index of the first output token among `tokens`
    outputs: Ints  # [N] output tokens
    tokens: NDArray[np.int32]
    first_place: Ints  # [N + 1]
    first_node: Ints  # [P + 1]
    parent: NDArray[np.uint8]  # [M]
    depth: NDArray[np.uint8]  # [M]
    widths: NDArray[np.uint8]  # [M]
    token: NDArray[np.int32]  # [M]
    probability: NDArray[np.float32]  # [M]
    log_ratio: NDArray[np.uint16]  # [M] the float16's bits: Numba knows no such number
    half: NDArray[np.float32]  # [65536] by those bits
    entropy: NDArray[np.float32]  # [P]
    divergence: NDArray[np.float32]  # [P]


class Cursor(NamedTuple):
    """What each slot [R, S] replays, and which recorded nodes its candidates are."""

    text: Ints  # [R, S]
    node: Ints  # [R, S, N] of each candidate, counted from the first of its place
    known: Ints  # [R, S] candidates whose node stands there
    offered: Ints  # [R, S, W] children offered of each beam node in the latest step
    child: Ints  # [R, S, W, W] their nodes, likewise counted
    scored: Ints  # [R, S] nodes that the live drafter would have scored
    drafted_to: Ints  # [R, S] context that the live drafter would have run
    load: Ints  # [R, 3] of the latest pass: tokens, cached tokens of its requests, requests


def open_book(recording: Recording) -> Book:
    """The recording as the kernels want it; arrays are shared where they can be."""
    first_output = recording.first_token[:-1] + recording.prompt_tokens
    return Book(
        first_output=first_output,
        outputs=recording.first_token[1:] - first_output,
        tokens=recording.tokens,
        first_place=recording.first_place,
        first_node=recording.first_node,
        parent=recording.parent,
        depth=recording.depth,
        widths=recording.widths,
        token=recording.token,
        probability=recording.probability,
        log_ratio=recording.log_ratio.view(np.uint16),
        half=np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32),
        entropy=recording.entropy.astype(np.float32),
        divergence=recording.divergence.astype(np.float32),
    )


def new_cursor(replicas: int, limits: Limits) -> Cursor:
    """Nobody replays anything yet."""
    slots = (replicas, limits.slots)
    widest = limits.max_width
    return Cursor(
        text=np.full(slots, -1, np.int64),
        node=np.zeros((*slots, limits.max_candidates), np.int64),
        known=np.zeros(slots, np.int64),
        offered=np.zeros((*slots, widest), np.int64),
        child=np.zeros((*slots, widest, widest), np.int64),
        scored=np.zeros(slots, np.int64),
        drafted_to=np.zeros(slots, np.int64),
        load=np.zeros((replicas, 3), np.int64),
    )


def place_of(book: Book, cursor: Cursor, emitted: Ints) -> Ints:
    """Of every slot [R, S] that decodes, the place of its root; elsewhere some other place."""
    place: Ints = book.first_place[cursor.text] + emitted - 1
    return np.clip(place, 0, len(book.entropy) - 1)


@njit(cache=True)
def offer_roots(
    drafting: Bools,  # [R, S]
    context: Ints,  # [R, S]
    emitted: Ints,  # [R, S] output tokens so far: the last of them is the root
    book: Book,
    cursor: Cursor,
    child_token: Ints,  # [R, S, W, W], written
    child_probability: Floats,  # [R, S, W, W], written
    entropy: Floats,  # [R, S], written: of the drafter's distribution behind the root
) -> None:
    """Write the recorded children of every drafting slot's root, likeliest first.

    All W of depth 1: how many of them the slot's beam takes is the loop's to say. The load is that
    of catching up with the committed text.
    """
    widest = child_token.shape[2]
    for r in range(drafting.shape[0]):
        cursor.load[r] = 0
        for s in range(drafting.shape[1]):
            cursor.known[r, s] = cursor.scored[r, s] = 0
            cursor.offered[r, s] = 0
            if not drafting[r, s]:
                continue
            _add_load(r, context[r, s] - cursor.drafted_to[r, s], context[r, s], cursor)
            cursor.drafted_to[r, s] = context[r, s]
            place = book.first_place[cursor.text[r, s]] + emitted[r, s] - 1
            entropy[r, s] = book.entropy[place]
            first = book.first_node[place]
            n = 0
            for i in range(first, book.first_node[place + 1]):
                if book.depth[i] == 1 and n < widest:
                    child_token[r, s, 0, n] = book.token[i]
                    child_probability[r, s, 0, n] = _ranked(book, first, i)
                    cursor.child[r, s, 0, n] = i - first
                    n += 1
            if n < widest:
                child_probability[r, s, 0, n] = 0.0
            cursor.offered[r, s, 0] = n


@njit(cache=True, error_model="numpy")
def offer_children(
    step: int,  # draft steps that are done
    context: Ints,  # [R, S]
    emitted: Ints,  # [R, S]
    book: Book,
    cursor: Cursor,
    trees: TreeState,
    beam: BeamState,
    child_token: Ints,  # [R, S, W, W], written
    child_probability: Floats,  # [R, S, W, W], written
) -> None:
    """Write the recorded children of every beam node, likeliest first, in slots with a width.

    Only those that a beam of just that width has scored: a wider one takes more of a node's. The
    load is that of whole beams: what is not recorded of them was drafted as well.
    """
    widest = child_token.shape[2]
    place_of = np.empty(ROOT + 1, np.int64)  # of each node in the beam
    for r in range(emitted.shape[0]):
        cursor.load[r] = 0
        for s in range(emitted.shape[1]):
            _note_nodes(r, s, trees.size[r, s], cursor)
            cursor.offered[r, s] = 0
            width = beam.width[r, s]
            if width == 0:
                continue
            _add_load(r, width, context[r, s], cursor)
            cursor.scored[r, s] = width + step * width * width
            place_of[:] = -1
            for p in range(beam.size[r, s]):
                place_of[cursor.node[r, s, beam.candidate[r, s, p]]] = p
            place = book.first_place[cursor.text[r, s]] + emitted[r, s] - 1
            first = book.first_node[place]
            for i in range(first, book.first_node[place + 1]):
                if book.depth[i] != step + 1 or not book.widths[i] >> (width - 1) & 1:
                    continue
                above = book.parent[i]
                p = place_of[above]
                if p < 0 or cursor.offered[r, s, p] == width:
                    continue
                c = cursor.offered[r, s, p]
                child_token[r, s, p, c] = book.token[i]
                of_path = _ranked(book, first, i)
                child_probability[r, s, p, c] = of_path / _ranked(book, first, first + above)
                cursor.child[r, s, p, c] = i - first
                cursor.offered[r, s, p] = c + 1
            for p in range(beam.size[r, s]):
                if cursor.offered[r, s, p] < widest:
                    child_probability[r, s, p, cursor.offered[r, s, p]] = 0.0


@njit(cache=True)
def answer(
    decoding: Bools,  # [R, S]
    context: Ints,  # [R, S]
    emitted: Ints,  # [R, S]
    book: Book,
    cursor: Cursor,
    trees: TreeState,
    choices: Choices,
) -> None:
    """Fill in what the target says after the root and after every candidate: the text's own tokens.

    After a node of depth d that is the text's (d + 1)th next token, whether or not the node is on
    its path.
    """
    for r in range(decoding.shape[0]):
        cursor.load[r] = 0
        for s in range(decoding.shape[1]):
            if not decoding[r, s]:
                continue
            size = trees.size[r, s]
            _note_nodes(r, s, size, cursor)
            if size > 0:  # else nothing was drafted, and the cursor tells of an earlier step
                trees.scored[r, s] = max(cursor.scored[r, s], size)
            text = cursor.text[r, s]
            first_node = book.first_node[book.first_place[text] + emitted[r, s] - 1]
            following = book.first_output[text] + emitted[r, s]
            # Behind the text's end nothing is emitted: a tree is never so deep.
            last = book.first_output[text] + book.outputs[text] - 1
            choices.failed[r, s] = False
            choices.root_token[r, s] = book.tokens[following]
            verified = 1
            for i in range(size):
                verified += trees.kept[r, s, i]
                at = min(following + trees.depth[r, s, i], last)
                choices.node_token[r, s, i] = book.tokens[at]
                bits = book.log_ratio[first_node + cursor.node[r, s, i]]
                choices.log_ratio[r, s, i] = book.half[bits]
            _add_load(r, verified, context[r, s], cursor)


@njit(**INNER)
def _add_load(r: int, tokens: int, context: int, cursor: Cursor) -> None:
    """One request more in the pass."""
    cursor.load[r, 0] += tokens
    cursor.load[r, 1] += context
    cursor.load[r, 2] += 1


@njit(**INNER)
def _note_nodes(r: int, s: int, size: int, cursor: Cursor) -> None:
    """Note of every candidate that the loop added since the last offer which recorded node it is.

    The loop takes children in the order in which they were offered; it may leave out the last.
    """
    n = cursor.known[r, s]
    for p in range(cursor.offered.shape[2]):
        for c in range(cursor.offered[r, s, p]):
            if n < size:
                cursor.node[r, s, n] = cursor.child[r, s, p, c]
                n += 1
    cursor.known[r, s] = size


@njit(**INNER)
def _ranked(book: Book, first: int, i: int) -> float:
    """Path probability of node i of the place that begins at `first`."""
    return ranked(book.probability[i], i - first)


@njit(**INNER)
def ranked(probability: float, index: int) -> float:
    """The path probability of a place's node by its index; no two of a place are equal."""
    return max(float(probability), LEAST) * (1.0 - TIE * index)
