"""Sequoia: its dynamic programme against all trees, positions of candidates, and its estimate."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import UserError
from engine.kernels.best_trees import best_trees
from engine.kernels.tree_positions import in_tree
from engine.protocol import NODE_TIERS, Candidates, Limits
from policies import registry
from policies.sequoia import Sequoia, Table, Tree, shared_out, tree_of
from tests.priced_views import priced_view
from tests.test_adaptivespec import outcome_of
from tests.twins.best_trees import all_trees, expected, most_tokens
from tests.twins.positions import positions as twin

LIMITS = Limits(slots=2, max_depth=3, max_width=3, max_nodes=8)


def nested(tree: Tree, at: int = 0) -> tuple:
    """The tree as its twin writes it."""
    return tuple(nested(tree, c) for c in tree.child[at].tolist() if c >= 0)


def test_no_tree_is_better() -> None:
    rng = np.random.default_rng(0)
    for _ in range(12):
        ranks = int(rng.integers(1, 4))
        acceptance = rng.dirichlet(np.ones(ranks + 1))[:ranks]
        if rng.random() < 0.7:
            acceptance = -np.sort(-acceptance)  # also ranks that are out of order
        if rng.random() < 0.2:
            acceptance[-1] = 0.0
        table = Table(*best_trees(acceptance, 7, 5))
        for layers in range(1, 6):
            for nodes in range(1, 8):
                best = most_tokens(acceptance.tolist(), nodes, layers)
                assert table.tokens[layers, nodes] == pytest.approx(best)
                if np.isfinite(best):
                    tree = tree_of(table, nodes, layers)
                    shape = nested(tree)
                    assert shape in all_trees(nodes, layers, ranks)
                    assert expected(shape, acceptance.tolist()) == pytest.approx(best)
                    assert tree.nodes == nodes - 1 and tree.depth < layers


def test_a_tree_by_hand() -> None:
    # p = 0.6, 0.3. Four nodes: a chain has 1 + 0.6 (1 + 0.6 (1 + 0.6)) = 2.176; a root with two
    # children, the first of which has one, 1 + 0.6 · 1.6 + 0.3 = 2.26; in two layers none has four.
    table = Table(*best_trees(np.array([0.6, 0.3]), 4, 4))
    assert table.tokens[3, 4] == table.tokens[4, 4] == pytest.approx(2.26)
    assert table.tokens[2, 4] == -np.inf and table.tokens[2, 3] == pytest.approx(1.9)
    tree = tree_of(table, 4, 4)
    assert nested(tree) == (((),), ()) and tree.depth == 2
    assert (tree.child[-1] == -1).all()


def test_the_tree_that_pays_by_hand() -> None:
    # p = 0.5, 0.25 and one request. The best trees have 1, 1.5, 1.75 (a chain of three, or two
    # children), … tokens. Steps take 10 s, 1 s a draft step and 0.1 s for each of its rows (1, then
    # 2), and verification 1 s a token: 1 / 11 = 0.091; 1.5 / (10 + 1.1 + 2) = 0.1145; two children
    # 1.75 / (11.1 + 3) = 0.1241, a chain 1.75 / (12.3 + 3); four nodes in two steps have
    # 1 + 0.5 · 1.5 + 0.25 = 2, so 2 / (12.3 + 4) = 0.1227; five 2.125, so 2.125 / 17.3 = 0.1228.
    controller = Sequoia(acceptance=(0.5, 0.25), width=2, depth=2, nodes=4)
    controller.reset(LIMITS)
    plan = controller.plan(priced_view(1, np.arange(40.0), LIMITS))
    assert nested(controller.tree) == ((), ())
    assert [set(a.tolist()) for a in plan[:3]] == [{1}, {2}, {2}]
    # Drafting dear by 100 s of catching up: not at all. Verification for nothing: the largest.
    plan = controller.plan(priced_view(1, np.arange(40.0), LIMITS, catch_up_s=100.0))
    assert plan.depth.tolist() == [0, 0] and plan.nodes.tolist() == [0, 0]
    plan = controller.plan(priced_view(1, np.zeros(40), LIMITS))
    assert plan.nodes.tolist() == [4, 4] and plan.depth.tolist() == [2, 2]


def test_no_size_and_depth_is_faster() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        acceptance = tuple((-np.sort(-rng.dirichlet(np.ones(4))))[:3].tolist())
        verified = np.cumsum(rng.random(40))
        view = priced_view(2, verified, LIMITS)
        controller = Sequoia(acceptance=acceptance, width=3, depth=3, nodes=6)
        controller.reset(LIMITS)
        controller.plan(view)
        rates: dict[tuple, float] = {}
        for nodes in range(1, 8):
            for layers in range(1, 5):
                depth = layers - 1
                draft_s = depth + 0.1 * 2 * (1 + (depth - 1) * 3) if depth else 0.0
                seconds = 10 + draft_s + verified[2 * nodes]
                for tree in all_trees(nodes, layers, 3):
                    rates[tree] = max(rates.get(tree, 0.0), expected(tree, acceptance) / seconds)
        assert rates[nested(controller.tree)] == pytest.approx(max(rates.values()))


def drafted() -> Candidates:
    """A beam of 2: a slot whose beam expanded both, one that expanded its second child alone."""
    parent = np.array([[-1, -1, 0, 0, 1, 1], [-1, -1, 1, 1, 0, 0]])
    depth = np.array([[1, 1, 2, 2, 2, 2]] * 2)
    return Candidates(np.array([6, 4]), parent, depth, depth, np.full((2, 6), 0.5))


def test_candidates_with_a_position_are_in_the_tree() -> None:
    # Root 0 with children 1 (child 3) and 2 (children 4 and 5).
    child = np.full((7, 2), -1)
    child[0], child[1, 0], child[2] = (1, 2), 3, (4, 5)
    given, both = drafted(), np.ones(2, np.bool_)
    found = in_tree(both, given.size, given.parent, child).astype(int)
    assert found.tolist() == [[1, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0]]
    second = in_tree(np.array([False, True]), given.size, given.parent, child).astype(int)
    assert second.tolist() == [[0] * 6, found[1].tolist()]
    # Ranks beyond the tree's have no position.
    chain = np.array([[1], [2], [-1], [-1]])
    assert in_tree(both, given.size, given.parent, chain).astype(int).tolist() == [
        [1, 0, 1, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
    ]


def test_the_tree_is_the_twins() -> None:
    rng = np.random.default_rng(1)
    table = Table(*best_trees(np.array([0.5, 0.3, 0.1]), 20, 5))
    for nodes in range(2, 20):
        tree = tree_of(table, nodes, 5)
        slots = [random_beam(rng) for _ in range(5)]
        size = np.array([len(slot) for slot in slots])
        parent, depth = (np.full((5, size.max() + 1), -1) for _ in range(2))
        for s, slot in enumerate(slots):
            parent[s, : size[s]], depth[s, : size[s]] = np.array(slot).T
        given = Candidates(size, parent, depth, depth, np.ones(depth.shape))
        real = np.arange(parent.shape[1]) < size[:, None]
        found = in_tree(np.ones(5, np.bool_), size, parent, tree.child)
        assert np.array_equal(found, twin(given, real, tree) >= 0)


def random_beam(rng: np.random.Generator) -> list[tuple[int, int]]:
    """Parent and depth of candidates: of each layer a few are expanded, in any order."""
    beam = [(-1, 1)] * 4
    for depth in range(1, 5):
        layer = [i for i, (_, d) in enumerate(beam) if d == depth]
        for parent in rng.permutation(layer)[: rng.integers(1, 4)].tolist():
            beam += [(parent, depth + 1)] * 4
    return beam


def test_selection_is_the_tree_as_far_as_it_was_drafted() -> None:
    controller = Sequoia(acceptance=(0.5, 0.25), width=2, depth=2, nodes=4)
    controller.reset(LIMITS)
    view = priced_view(2, np.zeros(40), LIMITS)
    plan = controller.plan(view)
    assert nested(controller.tree) == (((),), ((),))
    assert controller.select(view, plan, drafted()).tolist() == [
        [True, True, True, False, True, False],
        [True, True, True, False, False, False],
    ]
    alone = view._replace(active=np.array([True, False]))
    assert not controller.select(alone, plan, drafted())[1].any()


def within(rank: int | None) -> np.ndarray:
    """`accepted_within` of one slot whose accepted child is the `rank`-th, or none."""
    table = np.ones((LIMITS.max_depth + 1, len(NODE_TIERS)), np.int64)
    if rank is not None:
        table[1:] += np.array(NODE_TIERS) > rank
    return table


def test_counts_are_shared_out_by_rank() -> None:
    # Of 10 roots the likeliest 1, 2, 4, 8 held the target's token 5, 7, 8, 9 times: so 5 first, 2
    # second, 1 third or fourth, whose estimates are 0.06 and 0.02, and 1 later, which is not asked.
    found = shared_out(np.array([5, 7, 8, 9, 9, 9, 9]), np.array([0.5, 0.2, 0.06, 0.02]))
    assert found.tolist() == pytest.approx([5, 2, 0.75, 0.25])
    assert shared_out(np.array([5, 7, 8, 9, 9, 9, 9]), np.array([0.9])).tolist() == [5]
    assert shared_out(np.array([1, 2, 4, 4, 4, 4, 4]), np.zeros(4)).tolist() == [1, 1, 1, 1]


def test_an_estimate_by_hand() -> None:
    # Ten roots at 0.5, 0.15, 0.045 to begin with, decayed by 0.9, and two more: one whose first
    # child was right, and one whose second was: (4.5 + 1) / 11, (1.35 + 1) / 11, 0.405 / 11.
    controller = Sequoia(width=3)
    controller.reset(LIMITS)
    view = priced_view(2, np.arange(40.0), LIMITS)
    plan = controller.plan(view)
    assert [set(a.tolist()) for a in plan[:3]] == [{1}, {3}, {3}]
    outcome = outcome_of([1, 1], [1, 1], LIMITS)
    controller.observe(outcome._replace(accepted_within=np.stack([within(0), within(1)])))
    assert controller.acceptance.tolist() == pytest.approx([5.5 / 11, 2.35 / 11, 0.405 / 11])
    # Who finished is left out, and nothing is learnt but from probes.
    before = controller.acceptance
    done = outcome._replace(finished=np.array([True, True]))
    controller.observe(done._replace(accepted_within=np.stack([within(0), within(1)])))
    assert (controller.acceptance == before).all()


def test_it_probes_at_first_and_then_every_so_often() -> None:
    controller = Sequoia(width=3, probe=7)
    controller.reset(LIMITS)
    view = priced_view(2, np.arange(40.0), LIMITS, catch_up_s=1e6)  # nothing ever pays
    depths = [int(controller.plan(view).depth[0]) for _ in range(21)]
    assert [i for i, depth in enumerate(depths, 1) if depth] == [1, 2, 3, 4, 5, 7, 14, 21]
    given = Sequoia(acceptance=(0.5,))
    given.reset(LIMITS)
    assert not any(given.plan(view).depth[0] for _ in range(30))


def test_the_estimate_follows_what_is_accepted() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0.6, 0.25, 0.1])
    controller = Sequoia(width=3, probe=1)
    controller.reset(LIMITS)
    view = priced_view(2, np.arange(40.0), LIMITS)
    seen = []
    for _ in range(600):
        controller.plan(view)
        ranks = [int(rng.choice(4, p=[*truth, 0.05])) for _ in range(2)]
        hits = [within(rank if rank < 3 else None) for rank in ranks]
        outcome = outcome_of([1, 1], [1, 1], LIMITS)
        controller.observe(outcome._replace(accepted_within=np.stack(hits)))
        seen.append(controller.acceptance)
    assert np.mean(seen[100:], axis=0) == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sequoia(depth=0)", "depth is 0"),
        ("sequoia(probe=0)", "probe is 0"),
        ("sequoia(acceptance=(0.9, 0.2))", "acceptance is (0.9, 0.2)"),
        ("sequoia(acceptance=())", "acceptance is ()"),
        ("sequoia(acceptance=0.5)", "acceptance is 0.5"),
    ],
)
def test_bad_parameters_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        registry.make(spec)
    assert says in str(caught.value)
