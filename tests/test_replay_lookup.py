"""Looked-up children and answers against their twin, at every place of a text and every width."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.protocol import new_children, new_choices
from engine.kernels.beam import grow, new_beam
from engine.protocol import Limits
from engine.replay.lookup import (
    answer,
    new_cursor,
    offer_children,
    offer_roots,
    open_book,
    place_of,
)
from engine.replay.recording import Recording
from engine.state import new_trees
from tests.tiny_recording import recorded
from tests.twins.replay_children import ROOT, Recorded, chance, children_of, said

TEXTS = 3


def nodes_of(recording: Recording, text: int, emitted: int) -> list[Recorded]:
    """The nodes behind the last of `emitted` output tokens."""
    place = int(recording.first_place[text]) + emitted - 1
    of_place = slice(*recording.first_node[place : place + 2].tolist())
    columns = (getattr(recording, name)[of_place].tolist() for name in Recorded._fields)
    return [Recorded(*row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("width", range(1, 9))
def test_children_and_answers_equal_their_twin(width: int) -> None:
    """Slots stand at different places of different texts, and the last one drafts nothing."""
    _, recording = recorded()
    limits = Limits(slots=TEXTS + 1)
    book, cursor = open_book(recording), new_cursor(1, limits)
    cursor.text[0] = range(TEXTS + 1)
    trees, beam, children = new_trees(1, limits), new_beam(1, limits), new_children(1, limits)
    choices, widths = new_choices(1, limits), np.full((1, limits.slots), width)
    drafting = np.arange(limits.slots)[None] < TEXTS
    entropy = np.full((1, limits.slots), np.nan)
    for emitted in np.array([[[1, 5, 9, 2]], [[39, 38, 20, 7]]]):
        trees.size[:] = trees.scored[:] = 0
        places = [nodes_of(recording, s, int(emitted[0, s])) for s in range(TEXTS)]
        offer_roots(drafting, 10 * emitted, emitted, book, cursor, *children, entropy)
        at = place_of(book, cursor, emitted)
        assert at[0, :TEXTS].tolist() == [
            recording.first_place[s] + emitted[0, s] - 1 for s in range(TEXTS)
        ]
        assert (entropy[drafting] == recording.entropy[at[drafting]]).all()
        assert np.isnan(entropy[~drafting]).all()
        for step in range(limits.max_depth):
            if step:
                offer_children(step, 10 * emitted, emitted, book, cursor, trees, beam, *children)
            for s, nodes in enumerate(places):
                parents = [ROOT] if step == 0 else cursor.node[0, s, beam.candidate[0, s]].tolist()
                for p, parent in enumerate(parents[: 1 if step == 0 else beam.size[0, s]]):
                    wanted = children_of(nodes, parent, width if step else None)
                    assert cursor.child[0, s, p, : cursor.offered[0, s, p]].tolist() == wanted
                    tokens = children.token[0, s, p, : len(wanted)]
                    assert tokens.tolist() == [nodes[i].token for i in wanted]
                    chances = children.probability[0, s, p]
                    expected = [chance(nodes, i) for i in wanted]
                    assert chances[: len(wanted)] == pytest.approx(expected, rel=1e-9)
                    assert (np.diff(chances[: len(wanted)]) < 0).all()  # ties are broken
                    assert len(wanted) == 8 or chances[len(wanted)] == 0
            grow(step + 1, drafting, widths, *children, trees, beam)
            kv = 10 * int(emitted[0, :TEXTS].sum())
            if step:
                assert cursor.load[0].tolist() == [TEXTS * width, kv, TEXTS]
        trees.kept[0, :, :3] = True
        answer(drafting, 10 * emitted, emitted, book, cursor, trees, choices)
        assert cursor.load[0].tolist() == [TEXTS * (1 + min(3, width + 7 * width**2)), kv, TEXTS]
        assert not cursor.offered[0, TEXTS].any()
        for s, nodes in enumerate(places):
            size = int(trees.size[0, s])
            known = [nodes[i] for i in cursor.node[0, s, :size]]
            assert [n.token for n in known] == trees.token[0, s, :size].tolist()
            assert [n.depth for n in known] == trees.depth[0, s, :size].tolist()
            assert trees.scored[0, s] == width + 7 * width**2 >= size
            end = int(recording.first_token[s + 1])
            output = recording.tokens[end - 40 : end].tolist()
            assert choices.root_token[0, s] == said(output, int(emitted[0, s]), 0)
            for i, node in enumerate(known):
                assert choices.node_token[0, s, i] == said(output, int(emitted[0, s]), node.depth)
                assert choices.log_ratio[0, s, i] == node.log_ratio


def test_nodes_whose_recorded_probabilities_tie_keep_their_order() -> None:
    """Float32 cannot tell some apart that the live engine could; the recording's order can."""
    _, recording = recorded()
    first, end = recording.first_node[:2].tolist()
    probability = recording.probability.copy()
    probability[first:end] = 0.25
    book, limits = open_book(recording._replace(probability=probability)), Limits(slots=1)
    cursor, children = new_cursor(1, limits), new_children(1, limits)
    trees, beam, one = new_trees(1, limits), new_beam(1, limits), np.ones((1, 1), np.int64)
    cursor.text[0] = 0
    offer_roots(one > 0, one, one, book, cursor, *children, np.zeros((1, 1)))
    grow(1, one > 0, 3 * one, *children, trees, beam)
    offer_children(1, one, one, book, cursor, trees, beam, *children)
    grow(2, one > 0, 3 * one, *children, trees, beam)
    order = np.argsort(-trees.probability[0, 0, : trees.size[0, 0]])
    answer(one > 0, one, one, book, cursor, trees, new_choices(1, limits))
    assert (np.diff(cursor.node[0, 0, order]) > 0).all()
