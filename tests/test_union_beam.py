"""The union of all widths holds, for each of them, exactly what `grow` makes of it alone."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings

from engine.kernels.beam import grow, new_beam
from engine.kernels.union_beam import grow_union, new_widths, union_limits
from engine.protocol import Limits
from engine.state import new_trees
from tests.random_unions import UnionCase, chain_of, children_of, grow_unions, union_cases
from tests.twins.grow_union import Chain, grown
from tests.twins.grow_union import grow_union as grow_union_twin


def bits(mask: int) -> set[int]:
    """The widths that a mask stands for."""
    return {bit + 1 for bit in range(8) if mask >> bit & 1}


@settings(max_examples=60)
@given(union_cases())
def test_the_union_equals_its_twin(case: UnionCase) -> None:
    union = grow_unions(case)
    for slot in range(2):
        twin = grow_union_twin(case.max_width, case.max_depth, partial(children_of, case, slot))
        size = int(union.trees.size[0, slot])
        chains = [chain_of(union.trees, slot, i) for i in range(size)]
        assert len(set(chains)) == size
        probability = union.trees.probability[0, slot, :size].tolist()
        assert dict(zip(chains, probability, strict=True)) == twin.probability
        scored = [bits(m) for m in union.widths.scored[0, slot, :size].tolist()]
        assert dict(zip(chains, scored, strict=True)) == twin.scored
        survives = [bits(m) for m in union.widths.survives[0, slot, :size].tolist()]
        kept = {c: s for c, s in zip(chains, survives, strict=True) if s}
        assert kept == twin.survives


@settings(max_examples=60)
@given(union_cases())
def test_a_width_s_nodes_stand_in_the_order_in_which_grow_drafts_them(case: UnionCase) -> None:
    union = grow_unions(case)
    for slot in range(2):
        for width in range(1, case.max_width + 1):
            nodes, beams = grown(width, case.max_depth, partial(children_of, case, slot))
            mine = union.widths.scored[0, slot, : union.trees.size[0, slot]] >> (width - 1) & 1
            found = np.flatnonzero(mine)
            assert union.trees.depth[0, slot, found].tolist() == [n.depth for n in nodes]
            assert union.trees.token[0, slot, found].tolist() == [n.token for n in nodes]
            assert union.trees.probability[0, slot, found].tolist() == [
                n.probability for n in nodes
            ]
            for step, beam in enumerate(beams):
                surviving = [
                    chain_of(union.trees, slot, i)
                    for i in union.beams[step][slot]
                    if union.widths.survives[0, slot, i] >> (width - 1) & 1
                ]
                assert surviving == beam


@settings(max_examples=30)
@given(union_cases())
def test_one_width_alone_is_what_the_engine_s_own_kernel_grows(case: UnionCase) -> None:
    union = grow_unions(case, slots=1)
    for width in range(1, case.max_width + 1):
        limits = Limits(1, case.max_depth, width)
        trees, beam = new_trees(1, limits), new_beam(1, limits)
        for step in range(1, case.max_depth + 1):
            token = np.zeros((1, 1, width, width), np.int64)
            probability = np.zeros(token.shape)
            parents: list[Chain] = [()]
            if step > 1:
                parents = [chain_of(trees, 0, int(i)) for i in beam.candidate[0, 0]]
                parents = parents[: beam.size[0, 0]]
            for place, above in enumerate(parents):
                tokens, chances = children_of(case, 0, above)
                token[0, 0, place], probability[0, 0, place] = tokens[:width], chances[:width]
            alive = np.ones((1, 1), np.bool_)
            grow(step, alive, np.full((1, 1), width), token, probability, trees, beam)
        size = int(trees.size[0, 0])
        mine = union.widths.scored[0, 0, : union.trees.size[0, 0]] >> (width - 1) & 1
        found = np.flatnonzero(mine)
        for name in ("depth", "token", "probability"):
            np.testing.assert_array_equal(
                getattr(union.trees, name)[0, 0, found], getattr(trees, name)[0, 0, :size], name
            )


def test_a_beam_row_sees_its_ancestors_rows_and_itself() -> None:
    case = UnionCase(seed=3, max_depth=3, max_width=4, tied=False)
    union = grow_unions(case)
    room = union.beam.candidate.shape[2]
    for slot in range(2):
        for place, i in enumerate(union.beams[-1][slot]):
            rows = set()
            node = i
            for step in range(case.max_depth, 0, -1):
                rows.add((step - 1) * room + union.beams[step - 1][slot].index(node))
                node = int(union.trees.parent[0, slot, node])
            assert set(np.flatnonzero(union.beam.ancestors[0, slot, place]).tolist()) == rows


def test_a_slot_that_does_not_draft_has_no_beam() -> None:
    limits = union_limits(2, 2, 2)
    trees, beam, widths = new_trees(1, limits), new_beam(1, limits), new_widths(1, limits)
    beam.size[:] = 1
    shape = (1, 2, limits.max_width, 2)
    token, probability = np.ones(shape, np.int64), np.full(shape, 0.5)
    grow_union(1, np.array([[True, False]]), token, probability, trees, beam, widths)
    assert beam.size[0].tolist() == [2, 0]
    assert trees.size[0].tolist() == [2, 0]


def test_a_beam_with_too_few_places_is_an_error_and_not_a_shorter_beam() -> None:
    limits = Limits(1, 2, 2)  # a beam of two where three survive
    trees, beam, widths = new_trees(1, limits), new_beam(1, limits), new_widths(1, limits)
    token = np.arange(6).reshape(1, 1, 2, 3)
    alive = np.ones((1, 1), np.bool_)
    with pytest.raises(ValueError, match="places"):
        grow_union(1, alive, token, np.full(token.shape, 0.3), trees, beam, widths)
