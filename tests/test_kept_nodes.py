"""What a place of a recording keeps: enough for every plan's tree, ranked as the engine ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.replay.kept_nodes import (
    MOST,
    KeptNodes,
    compare_with_text,
    keep_nodes,
    new_kept,
)
from engine.replay.recording import ROOT
from tests.random_unions import VOCAB, GrownUnion, UnionCase, chain_of, grow_unions, union_cases
from tests.test_union_beam import bits
from tests.twins.grow import Node
from tests.twins.keep_nodes import compare_with_text as compare_twin
from tests.twins.keep_nodes import keep_nodes as keep_twin

SLOTS = 2


def nodes_of(union: GrownUnion, slot: int) -> list[Node]:
    """A slot's candidates as the twins know them."""
    trees = union.trees
    return [
        Node(
            int(trees.parent[0, slot, i]),
            int(trees.depth[0, slot, i]),
            int(trees.token[0, slot, i]),
            float(trees.probability[0, slot, i]),
        )
        for i in range(int(trees.size[0, slot]))
    ]


def kept_of(union: GrownUnion, case: UnionCase, max_nodes: int, on_path: np.ndarray) -> KeptNodes:
    """What the kernel keeps."""
    kept = new_kept(SLOTS)
    ratio = np.zeros(on_path.shape)
    keep_nodes(
        SLOTS, case.max_depth, case.max_width, max_nodes, union.trees, union.widths, on_path,
        ratio, kept,
    )  # fmt: skip
    return kept


@settings(max_examples=40)
@given(union_cases(), st.integers(1, 20))
def test_kept_nodes_equal_their_twin(case: UnionCase, max_nodes: int) -> None:
    union = grow_unions(case, SLOTS)
    on_path = np.zeros(union.trees.parent.shape[1:], np.bool_)
    kept = kept_of(union, case, max_nodes, on_path)
    for slot in range(SLOTS):
        nodes = nodes_of(union, slot)
        masks = [m[0, slot].tolist() for m in (union.widths.scored, union.widths.survives)]
        scored, survives = ([bits(mask) for mask in of] for of in masks)
        wanted = keep_twin(
            case.max_depth, case.max_width, max_nodes, MOST, nodes, scored, survives,
            [False] * len(nodes),
        )  # fmt: skip
        assert kept.size[slot] == len(wanted)
        place = {i: n for n, i in enumerate(wanted)}
        for n, i in enumerate(wanted):
            assert kept.parent[slot, n] == place.get(nodes[i].parent, ROOT)
            assert kept.depth[slot, n] == nodes[i].depth
            assert kept.token[slot, n] == nodes[i].token
            assert kept.probability[slot, n] == np.float32(nodes[i].probability)
            assert kept.widths[slot, n] == masks[0][i]
            assert kept.parent[slot, n] == ROOT or kept.parent[slot, n] < n


def test_what_finds_no_room_is_the_least_likely_that_stands_in_no_beam() -> None:
    case = UnionCase(seed=1, max_depth=6, max_width=8, tied=False)
    union = grow_unions(case, SLOTS)
    sizes = union.trees.size[0]
    assert (sizes > MOST).all(), "a case that fits tests nothing"
    on_path = np.zeros(union.trees.parent.shape[1:], np.bool_)
    last = [int(np.argmin(union.trees.probability[0, s, : sizes[s]])) for s in range(SLOTS)]
    on_path[range(SLOTS), last] = True  # the least likely of all, and the text's own
    kept, ratio = new_kept(SLOTS), np.zeros(on_path.shape)
    lost = keep_nodes(SLOTS, 6, 8, 10**6, union.trees, union.widths, on_path, ratio, kept)
    assert lost == (sizes - MOST).sum()
    for slot in range(SLOTS):
        nodes = nodes_of(union, slot)
        survives = [bits(m) for m in union.widths.survives[0, slot].tolist()]
        scored = [bits(m) for m in union.widths.scored[0, slot].tolist()]
        wanted = keep_twin(6, 8, 10**6, MOST, nodes, scored, survives, on_path[slot].tolist())
        assert kept.size[slot] == MOST == len(wanted)
        assert last[slot] in wanted
        assert kept.token[slot].tolist() == [nodes[i].token for i in wanted]


@settings(max_examples=40)
@given(union_cases(), st.integers(0, 5))
def test_the_text_is_found_as_the_twin_finds_it(case: UnionCase, place: int) -> None:
    union = grow_unions(case, SLOTS)
    rng = np.random.default_rng(case.seed)
    output = rng.integers(0, VOCAB, 7)
    # A text that the trees know something of: some candidate's own tokens.
    if union.trees.size[0, 0]:
        chain = chain_of(union.trees, 0, int(rng.integers(union.trees.size[0, 0])))
        ahead = output[place + 1 : place + 1 + len(chain)]
        ahead[:] = chain[: len(ahead)]
    levels = rng.normal(size=(len(output) - 1, VOCAB))
    floor = np.sort(levels)[:, -5]
    shape = union.trees.parent.shape[1:]
    on_path, ratio = np.ones(shape, np.bool_), np.zeros(shape)
    places = np.full(SLOTS, place)
    compare_with_text(places, output, levels, floor, union.trees, on_path, ratio)
    for slot in range(SLOTS):
        nodes = nodes_of(union, slot)
        twin = compare_twin(place, output.tolist(), levels.tolist(), floor.tolist(), nodes)
        assert on_path[slot, : len(nodes)].tolist() == twin.on_path
        assert ratio[slot, : len(nodes)].tolist() == pytest.approx(twin.log_ratio)
