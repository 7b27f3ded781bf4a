"""Lay trees and beams out as flat batches with masks, the form that the networks take.

Live only, so one replica: arrays here start at the slot axis.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Ints


@njit(cache=True)
def lay_out_trees(
    decoding: Bools,  # [S]
    context: Ints,  # [S]
    last_token: Ints,  # [S]
    kept: Bools,  # [S, N]
    parent: Ints,  # [S, N]
    depth: Ints,  # [S, N]
    token: Ints,  # [S, N]
    flat: Ints,  # [6, T_max], written: token, position, slot, row, offset, candidate (-1 the root)
    mask: Bools,  # [S, Q, L], written; all False on entry
) -> int:
    """Root and kept nodes of every decoding slot, parents first; returns the number of tokens.

    A node sees the slot's context, the root, its ancestors and itself. Row and position differ in
    a tree: siblings share a position and need rows of their own.
    """
    n_slots, most = kept.shape
    local = np.empty(most, np.int64)
    n = 0
    for s in range(n_slots):
        if not decoding[s]:
            continue
        base = context[s]
        _put(flat, n, last_token[s], base, s, base, 0, -1)
        mask[s, 0, : base + 1] = True
        n += 1
        used = 1
        for i in range(most):
            if not kept[s, i]:
                continue
            above = 0 if parent[s, i] < 0 else local[parent[s, i]]
            local[i] = used
            _put(flat, n, token[s, i], base + depth[s, i], s, base + used, used, i)
            mask[s, used, : base + used] = mask[s, above, : base + used]
            mask[s, used, base + used] = True
            used += 1
            n += 1
    return n


@njit(cache=True)
def lay_out_beam(
    size: Ints,  # [S] beam nodes, 0 where a slot does not draft on
    candidate: Ints,  # [S, W]
    ancestors: Bools,  # [S, W, D · W]
    token: Ints,  # [S, N] candidates' tokens
    context: Ints,  # [S] committed draft rows
    step: int,  # the draft step that made this beam
    flat: Ints,  # [6, T_max], written; last row the place in the beam
    mask: Bools,  # [S, W, L], written; all False on entry
) -> int:
    """Beam nodes of every drafting slot, each in its own scratch row behind the context."""
    n_slots, widest = candidate.shape
    n = 0
    for s in range(n_slots):
        for place in range(size[s]):
            own = (step - 1) * widest + place
            position = context[s] + step - 1
            row = context[s] + own
            _put(flat, n, token[s, candidate[s, place]], position, s, row, place, place)
            mask[s, place, : context[s]] = True
            for k in range(own + 1):
                mask[s, place, context[s] + k] = ancestors[s, place, k]
            n += 1
    return n


@njit(cache=True)
def lay_out_rows(
    first: Ints,  # [S] first row to run
    end: Ints,  # [S] end of the rows, equal to first where there is nothing to do
    text: Ints,  # [S, capacity]
    shift: int,  # token of row i is text[i + shift]
    flat: Ints,  # [6, T_max], written; last row the offset again
    mask: Bools,  # [S, Q, L], written; all False on entry
) -> int:
    """Consecutive rows of running text, each seeing all before it."""
    n = 0
    for s in range(first.shape[0]):
        for row in range(first[s], end[s]):
            offset = row - first[s]
            _put(flat, n, text[s, row + shift], row, s, row, offset, offset)
            mask[s, offset, : row + 1] = True
            n += 1
    return n


@njit(cache=True)
def _put(
    flat: Ints, n: int, token: int, position: int, slot: int, row: int, offset: int, extra: int
) -> None:
    flat[0, n] = token
    flat[1, n] = position
    flat[2, n] = slot
    flat[3, n] = row
    flat[4, n] = offset
    flat[5, n] = extra


@njit(cache=True)
def accepted_moves(
    decoding: Bools,  # [S]
    context: Ints,  # [S] before the commit
    path: Ints,  # [S, D]
    drafts: Ints,  # [S] accepted drafts that stay, the bonus token not counted
    kept: Bools,  # [S, N]
    moves: Ints,  # [3, S · D], written: slot, source row, target row
) -> int:
    """Cache rows of accepted nodes that must move to stand right behind the root."""
    n_slots, most = kept.shape
    local = np.empty(most, np.int64)
    n = 0
    for s in range(n_slots):
        if not decoding[s]:
            continue
        used = 1
        for i in range(most):
            if kept[s, i]:
                local[i] = used
                used += 1
        for j in range(drafts[s]):
            source = context[s] + local[path[s, j]]
            target = context[s] + 1 + j
            if source != target:
                moves[0, n] = s
                moves[1, n] = source
                moves[2, n] = target
                n += 1
    return n
