"""Selection: twins, closure under parents, the budget, and the best total by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from engine.kernels.select import close_under_parents, keep_best, rank_candidates
from engine.protocol import Bools, Ints, Limits
from engine.state import TreeState
from tests.random_trees import Case, assert_same, cases, copied, random_flags, random_trees, replica
from tests.twins.close_under_parents import close_under_parents as close_twin
from tests.twins.keep_best import best_total
from tests.twins.keep_best import keep_best as keep_twin
from tests.twins.rank_candidates import rank_candidates as rank_twin


def caps(case: Case) -> tuple[Ints, Ints]:
    """Node caps by slot and budgets by replica, also none and negative."""
    slots = (case.replicas, case.limits.slots)
    nodes = case.rng.integers(0, case.limits.max_candidates + 2, slots)
    return nodes, case.rng.integers(-1, 20, case.replicas)


def plain(trees: TreeState, decoding: Bools, r: int) -> list[list[tuple[int, int, float]]]:
    """Replica r's candidates as (parent, depth, probability); none where nobody decodes."""
    fields = (trees.parent[r], trees.depth[r], trees.probability[r])
    return [
        [
            (int(p), int(d), float(q))
            for p, d, q in zip(*(f[s, : trees.size[r, s]] for f in fields), strict=True)
        ]
        if decoding[r, s]
        else []
        for s in range(decoding.shape[1])
    ]


def kept_pairs(trees: TreeState, r: int) -> set[tuple[int, int]]:
    """(slot, candidate) of every kept node of replica r."""
    return {(int(s), int(i)) for s, i in np.argwhere(trees.kept[r])}


@given(cases())
def test_rank_equals_its_twin(case: Case) -> None:
    trees, decoding = random_trees(case), random_flags(case)
    before = trees.rank.copy()
    rank_candidates(decoding, trees)
    for r, s in np.ndindex(*decoding.shape):
        n = int(trees.size[r, s]) if decoding[r, s] else 0
        wanted = rank_twin(trees.probability[r, s, :n].tolist(), trees.depth[r, s, :n].tolist())
        assert trees.rank[r, s, :n].tolist() == wanted
        assert trees.rank[r, s, n:].tolist() == before[r, s, n:].tolist()


@given(cases())
def test_keep_best_equals_its_twin(case: Case) -> None:
    trees, decoding = random_trees(case), random_flags(case)
    trees.kept[:] = True  # the last iteration's marks
    nodes, budget = caps(case)
    rank_candidates(decoding, trees)
    dropped = keep_best(decoding, nodes, budget, trees)
    for r in range(case.replicas):
        wanted, gone = keep_twin(plain(trees, decoding, r), nodes[r].tolist(), int(budget[r]))
        assert kept_pairs(trees, r) == wanted
        assert dropped[r] == gone
        assert len(wanted) <= max(int(budget[r]), 0)
        for s, i in wanted:
            parent = int(trees.parent[r, s, i])
            assert parent < 0 or (s, parent) in wanted


@pytest.mark.parametrize("seed", range(25))
def test_no_closed_set_has_a_larger_total(seed: int) -> None:
    case = Case(np.random.default_rng(seed), 1, Limits(2, 3, 2, 12))
    trees, decoding = random_trees(case), np.ones((1, 2), np.bool_)
    trees.size[:] = np.minimum(trees.size, 6)
    nodes = case.rng.integers(0, 6, (1, 2))
    budget = case.rng.integers(0, 6, 1)
    rank_candidates(decoding, trees)
    keep_best(decoding, nodes, budget, trees)
    got = sum(float(trees.probability[0, s, i]) for s, i in kept_pairs(trees, 0))
    wanted = best_total(plain(trees, decoding, 0), nodes[0].tolist(), int(budget[0]))
    assert got == pytest.approx(wanted, abs=1e-12)


@given(cases())
def test_close_under_parents_equals_its_twin(case: Case) -> None:
    trees, decoding = random_trees(case), random_flags(case)
    trees.kept[:] = case.rng.random(trees.kept.shape) < 0.6
    asked = trees.kept.copy()
    dropped = close_under_parents(decoding, case.limits.max_nodes, trees)
    for r in range(case.replicas):
        gone = 0
        for s in range(case.limits.slots):
            n = int(trees.size[r, s]) if decoding[r, s] else 0
            wanted, orphans = close_twin(
                asked[r, s, :n].tolist(), trees.parent[r, s, :n].tolist(), case.limits.max_nodes
            )
            assert np.flatnonzero(trees.kept[r, s]).tolist() == wanted
            gone += orphans
        assert dropped[r] == gone


@given(cases())
def test_replicas_select_apart(case: Case) -> None:
    trees, decoding = random_trees(case), random_flags(case)
    nodes, budget = caps(case)
    mask = case.rng.random(trees.kept.shape) < 0.6
    alone = [copied(replica(trees, r)) for r in range(case.replicas)]
    rank_candidates(decoding, trees)
    dropped = keep_best(decoding, nodes, budget, trees)
    after = copied(trees)
    trees.kept[:] = mask
    orphans = close_under_parents(decoding, case.limits.max_nodes, trees)
    for r, one in enumerate(alone):
        mine = slice(r, r + 1)
        rank_candidates(decoding[mine], one)
        assert keep_best(decoding[mine], nodes[mine], budget[mine], one)[0] == dropped[r]
        assert_same(one, replica(after, r))
        one.kept[:] = mask[mine]
        assert close_under_parents(decoding[mine], case.limits.max_nodes, one)[0] == orphans[r]
        assert_same(one, replica(trees, r))
