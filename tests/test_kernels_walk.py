"""The walk and what smaller trees would have emitted, against walking again in plain Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given

from engine.backends.protocol import Choices, new_choices
from engine.kernels.select import rank_candidates
from engine.kernels.walk import accepted_within, is_stop, walk
from engine.protocol import NODE_TIERS, Bools, Floats
from engine.state import SlotState, TreeState
from tests.random_trees import (
    Case,
    assert_same,
    cases,
    keep_some,
    random_slots,
    random_trees,
    replica,
)
from tests.twins.accepted_within import accepted_within as within_twin
from tests.twins.walk import walk as walk_twin


class Scene(NamedTuple):
    """Everything that a walk reads."""

    decoding: Bools
    choices: Choices
    margin: Floats
    slots: SlotState
    trees: TreeState


def scene(case: Case, siblings_differ: bool = False, lossless: bool = False) -> Scene:
    """Kept trees, and a target that agrees with a child about every other time."""
    trees, slots = random_trees(case, siblings_differ), random_slots(case)
    keep_some(case, trees, slots.decoding)
    shape = trees.token.shape
    # Ratios of few values, so that they tie with one another and with the margin.
    ratios = case.rng.choice([0.0, np.log(0.5), np.log(0.3), -np.inf], shape)
    margins = [1.0] if lossless else [1.0, 0.9, 0.5, 0.1]
    choices = new_choices(case.replicas, case.limits)
    choices.root_token[:] = case.rng.integers(0, 4, shape[:2])
    choices.node_token[:] = case.rng.integers(0, 4, shape)
    choices.log_ratio[:] = ratios
    choices.failed[:] = case.rng.random(shape[:2]) < 0.1
    return Scene(
        slots.decoding,
        choices,
        case.rng.choice(margins, shape[:2]),
        slots,
        trees,
    )


def room(slots: SlotState, r: int, s: int) -> int:
    """Tokens that a request may still emit."""
    return int(slots.max_tokens[r, s] - slots.emitted[r, s])


def stops(slots: SlotState, r: int, s: int) -> set[int]:
    """Stop tokens of a slot."""
    return {int(t) for t in slots.stop[r, s] if t >= 0}


@given(cases())
def test_walk_equals_its_twin(case: Case) -> None:
    it = scene(case)
    trees = it.trees
    walk(*it)
    for r, s in np.ndindex(*it.decoding.shape):
        if not it.decoding[r, s] or it.choices.failed[r, s]:
            assert trees.accepted_length[r, s] == trees.path_length[r, s] == 0
            assert trees.let_through[r, s] == trees.given_up[r, s] == 0
            continue
        wanted = walk_twin(
            trees.parent[r, s].tolist(),
            trees.token[r, s].tolist(),
            np.flatnonzero(trees.kept[r, s]).tolist(),
            int(it.choices.root_token[r, s]),
            it.choices.node_token[r, s].tolist(),
            it.choices.log_ratio[r, s].tolist(),
            float(it.margin[r, s]),
            room(it.slots, r, s),
            stops(it.slots, r, s),
        )
        assert trees.accepted_length[r, s] == len(wanted.tokens) >= 1
        assert trees.new_tokens[r, s, : len(wanted.tokens)].tolist() == wanted.tokens
        assert trees.path[r, s, : trees.path_length[r, s]].tolist() == wanted.path
        assert trees.let_through[r, s] == wanted.let_through
        assert trees.given_up[r, s] == pytest.approx(wanted.given_up)
        if it.margin[r, s] == 1:
            assert wanted.let_through == 0


@given(cases())
def test_accepted_within_equals_walking_the_pruned_tree(case: Case) -> None:
    it = scene(case, siblings_differ=True, lossless=True)
    trees = it.trees
    rank_candidates(it.decoding, trees)
    walk(*it)
    tiers = np.array(NODE_TIERS)
    shape = (case.replicas, case.limits.slots, case.limits.max_depth + 1, len(tiers))
    within = np.full(shape, -1)
    accepted_within(it.decoding, tiers, trees, within)
    for r, s, d, t in np.ndindex(*shape):
        if not it.decoding[r, s] or it.choices.failed[r, s]:
            assert within[r, s, d, t] == 0
            continue
        wanted = within_twin(
            d,
            int(tiers[t]),
            trees.parent[r, s].tolist(),
            trees.depth[r, s].tolist(),
            trees.rank[r, s].tolist(),
            trees.token[r, s].tolist(),
            np.flatnonzero(trees.kept[r, s]).tolist(),
            int(it.choices.root_token[r, s]),
            it.choices.node_token[r, s].tolist(),
            room(it.slots, r, s),
            stops(it.slots, r, s),
        )
        assert within[r, s, d, t] == wanted


@given(cases())
def test_replicas_walk_apart(case: Case) -> None:
    it = scene(case)
    alone = [replica(it.trees, r) for r in range(case.replicas)]
    tiers = np.array(NODE_TIERS)
    shape = (case.replicas, case.limits.slots, case.limits.max_depth + 1, len(tiers))
    within = np.zeros(shape, np.int64)
    walk(*it)
    accepted_within(it.decoding, tiers, it.trees, within)
    for r, trees in enumerate(alone):
        mine = slice(r, r + 1)
        walk(
            it.decoding[mine],
            replica(it.choices, r),
            it.margin[mine],
            replica(it.slots, r),
            trees,
        )
        assert_same(trees, replica(it.trees, r))
        one = np.zeros((1, *shape[1:]), np.int64)
        accepted_within(it.decoding[mine], tiers, trees, one)
        np.testing.assert_array_equal(one, within[mine])


def test_minus_one_is_no_stop_token() -> None:
    none = np.full(4, -1)
    assert not is_stop(-1, none)
    assert is_stop(0, np.array([-1, 0, -1, -1]))
