"""Prompt lookup finds what the text says, in the order and with the chances that its twin says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.protocol import new_children
from engine.drafters.ngrams import continue_text
from engine.drafters.prompt_lookup import PromptLookup
from engine.kernels.beam import new_beam
from engine.protocol import Limits
from engine.state import new_slots, new_trees
from tests.twins.continue_text import continue_text as continue_text_twin

VOCAB = 9
LIMITS = Limits(slots=2, max_depth=4, max_width=3, max_nodes=8)


def continued(text: list[int], latest: list[int], width: int) -> list[tuple[int, float]]:
    """What the kernel proposes; checks what it must leave behind besides."""
    counts = np.zeros(VOCAB, np.int64)
    token, probability = np.full(width, -7), np.full(width, np.nan)
    found = continue_text(np.array(text), np.array(latest), counts, token, probability)
    assert not counts.any()
    assert len(set(token.tolist())) == width
    assert (probability[found:] == 0).all()
    return list(zip(token[:found].tolist(), probability[:found].tolist(), strict=True))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(1, VOCAB),
)
def test_continuations_equal_the_twin(text: list[int], latest: list[int], width: int) -> None:
    got, wanted = continued(text, latest, width), continue_text_twin(text, latest, width)
    assert [t for t, _ in got] == [t for t, _ in wanted]
    assert [p for _, p in got] == pytest.approx([p for _, p in wanted], rel=1e-12)
    assert all(0 < p <= 1 for _, p in got)
    assert sum(p for _, p in got) <= 1


def test_the_longest_ngram_speaks_first() -> None:
    # After 1 2 3 came 4; after 3 alone came 5 twice, later.
    text = [1, 2, 3, 4, 0, 3, 5, 0, 3, 5, 1, 2, 3]
    assert continued(text, [3, 2, 1], 3) == [(4, 1 / 2), (5, 1 / 2 * 2 / 3)]
    assert continued(text, [3], 3) == [(5, 2 / 5), (4, 1 / 5)]
    assert continued(text, [8], 3) == []


def test_of_equal_counts_the_latest_is_first() -> None:
    assert [t for t, _ in continued([0, 1, 0, 2, 0, 3, 0], [0], 3)] == [3, 2, 1]


def test_a_tree_follows_its_paths() -> None:
    drafter = PromptLookup(VOCAB, LIMITS, longest=3)
    slots, trees = new_slots(1, LIMITS, 32), new_trees(1, LIMITS)
    beam, children = new_beam(1, LIMITS), new_children(1, LIMITS)
    text = [1, 2, 3, 4, 5, 1, 2, 6, 7, 1, 2]
    slots.text[0, 0, : len(text)] = text
    slots.text[0, 1, :3] = [1, 2, 3]  # its last token is new
    slots.context[0] = [len(text) - 1, 2]
    drafting = np.array([[True, True]])
    drafter.draft_first(drafting, slots, children)
    assert drafting.tolist() == [[True, False]]
    assert children.token[0, 0, 0, :2].tolist() == [6, 3]
    # A beam of 3, of the path 3 4, and of a token that never stood in the text.
    trees.token[0, 0, :4] = [3, 6, 4, 8]
    trees.parent[0, 0, :4] = [-1, -1, 0, 1]
    beam.size[0] = [3, 0]
    beam.candidate[0, 0] = [0, 2, 3]
    drafter.draft_next(2, slots, trees, beam, children)
    assert children.token[0, 0, :2, 0].tolist() == [4, 5]
    assert (children.probability[0, 0, :, 0] > 0).tolist() == [True, True, False]
    assert beam.size[0].tolist() == [3, 0]
    paths = [[*text, 3], [*text, 3, 4]]
    for place, path in enumerate(paths):
        wanted = continue_text_twin(text, path[::-1][:3], LIMITS.max_width)
        got = children.token[0, 0, place], children.probability[0, 0, place]
        assert [t for t, _ in wanted] == got[0][: len(wanted)].tolist()
        assert [p for _, p in wanted] == pytest.approx(got[1][: len(wanted)].tolist())
    beam.size[0] = [1, 0]
    beam.candidate[0, 0, 0] = 3
    drafter.draft_next(3, slots, trees, beam, children)
    assert beam.size[0].tolist() == [0, 0]
