"""Layouts: tokens, positions, rows and masks of trees, beams and running text equal their twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from engine.kernels.beam import grow, new_beam
from engine.kernels.layout import accepted_moves, lay_out_beam, lay_out_rows, lay_out_trees
from engine.protocol import Bools, Ints
from engine.state import new_trees
from tests.random_trees import Case, cases, keep_some, random_slots, random_trees
from tests.test_kernels_beam import draws, grown
from tests.twins.accepted_moves import accepted_moves as moves_twin
from tests.twins.lay_out_beam import lay_out_beam as beam_twin
from tests.twins.lay_out_rows import lay_out_rows as rows_twin
from tests.twins.lay_out_trees import Laid
from tests.twins.lay_out_trees import lay_out_trees as trees_twin

one_replica = cases(replicas=1)


def compare(n: int, flat: Ints, mask: Bools, wanted: list[list[Laid]]) -> None:
    """The first n columns say what `wanted` says slot by slot, and so does the mask."""
    got: list[list[Laid]] = [[] for _ in wanted]
    order = []
    for token, position, slot, row, offset, extra in flat[:, :n].T.tolist():
        sees = frozenset(np.flatnonzero(mask[slot, offset]).tolist())
        got[slot].append(Laid(token, position, row, offset, extra, sees))
        order.append(slot)
    assert got == wanted
    assert order == sorted(order), "a slot's tokens stand side by side"
    assert mask.sum() == sum(len(laid.sees) for slot in wanted for laid in slot)


@given(one_replica)
def test_trees_equal_their_twin(case: Case) -> None:
    slots, trees = random_slots(case), random_trees(case)
    keep_some(case, trees, slots.decoding)
    decoding, context, kept = slots.decoding[0], slots.context[0], trees.kept[0]
    width = case.limits.max_nodes + 1
    flat = np.zeros((6, case.limits.slots * width), np.int64)
    mask = np.zeros((case.limits.slots, width, int(context.max()) + width), np.bool_)
    n = lay_out_trees(
        decoding,
        context,
        slots.last_token[0],
        kept,
        trees.parent[0],
        trees.depth[0],
        trees.token[0],
        flat,
        mask,
    )
    wanted = [
        trees_twin(
            int(context[s]),
            int(slots.last_token[0, s]),
            np.flatnonzero(kept[s]).tolist(),
            trees.parent[0, s].tolist(),
            trees.depth[0, s].tolist(),
            trees.token[0, s].tolist(),
        )
        if decoding[s]
        else []
        for s in range(case.limits.slots)
    ]
    compare(n, flat, mask, wanted)


@given(one_replica)
def test_beams_equal_their_twin(case: Case) -> None:
    limits = case.limits
    width, steps = draws(case)
    slots = random_slots(case)
    trees, beam = new_trees(1, limits), new_beam(1, limits)
    for step, (alive, tokens, chances) in enumerate(steps, 1):
        grow(step, alive, width, tokens, chances, trees, beam)
        flat = np.zeros((6, limits.slots * limits.max_width), np.int64)
        length = int(slots.context[0].max()) + step * limits.max_width
        mask = np.zeros((limits.slots, limits.max_width, length), np.bool_)
        n = lay_out_beam(
            beam.size[0],
            beam.candidate[0],
            beam.ancestors[0],
            trees.token[0],
            slots.context[0],
            step,
            flat,
            mask,
        )
        wanted = [
            beam_twin(
                grown(trees, beam, 0, s)[1],
                trees.token[0, s].tolist(),
                int(slots.context[0, s]),
                step,
                limits.max_width,
            )
            for s in range(limits.slots)
        ]
        compare(n, flat, mask, wanted)


@given(one_replica)
def test_rows_equal_their_twin(case: Case) -> None:
    slots = random_slots(case)
    end = slots.context[0]
    first = case.rng.integers(0, end + 1)
    shift = int(case.rng.integers(0, 2))
    flat = np.zeros((6, int(end.sum()) + 1), np.int64)
    mask = np.zeros((len(end), int((end - first).max()), int(end.max())), np.bool_)
    n = lay_out_rows(first, end, slots.text[0], shift, flat, mask)
    wanted = [
        rows_twin(int(first[s]), int(end[s]), slots.text[0, s].tolist(), shift)
        for s in range(len(end))
    ]
    compare(n, flat, mask, wanted)


@given(one_replica)
def test_moves_equal_their_twin(case: Case) -> None:
    limits, rng = case.limits, case.rng
    slots, trees = random_slots(case), random_trees(case)
    keep_some(case, trees, slots.decoding)
    decoding, context = slots.decoding[0], slots.context[0]
    wanted, drafts = [], np.zeros(limits.slots, np.int64)
    for s in np.flatnonzero(decoding).tolist():
        kept = np.flatnonzero(trees.kept[0, s]).tolist()
        path: list[int] = []  # a random walk down from the root
        while below := [i for i in kept if trees.parent[0, s, i] == (path[-1] if path else -1)]:
            path.append(int(rng.choice(below)))
        trees.path[0, s, : len(path)] = path
        drafts[s] = rng.integers(0, len(path) + 1)
        pairs = moves_twin(int(context[s]), path, int(drafts[s]), kept)
        wanted += [(s, source, target) for source, target in pairs]
    moves = np.zeros((3, limits.slots * limits.max_depth), np.int64)
    n = accepted_moves(decoding, context, trees.path[0], drafts, trees.kept[0], moves)
    assert [tuple(move) for move in moves[:, :n].T.tolist()] == wanted
