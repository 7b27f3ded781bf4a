"""AdaServe's selection: against all subtrees, figure 5 of the paper, its order, and its twin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from engine.kernels.slo_select import slo_select
from engine.protocol import Bools, Candidates, Floats
from tests.random_trees import Case, cases, random_trees
from tests.twins.slo_select import Tree, best_expected
from tests.twins.slo_select import slo_select as twin

MANY = 10**6


def flat(trees: Sequence[Tree]) -> Candidates:
    """The trees as a controller is given them."""
    most = max(1, *map(len, trees))
    parent, depth, chance = (np.zeros((len(trees), most)) for _ in range(3))
    for s, tree in enumerate(trees):
        for field, column in zip((parent, depth, chance), zip(*tree, strict=True), strict=False):
            field[s, : len(tree)] = column
    size = np.array([len(tree) for tree in trees])
    whole = parent.astype(np.int64), depth.astype(np.int64), np.zeros((len(trees), most), np.int64)
    return Candidates(size, *whole, chance)


def select(
    trees: Sequence[Tree],
    need: Sequence[float],
    budget: int,
    order: Sequence[int] | None = None,
    most_to_goal: int = MANY,
) -> tuple[Bools, Floats]:
    """Algorithm 1 by the production kernel: no cap of any kind, the largest need first."""
    given_, goal = flat(trees), np.array(need, float)
    everything = np.full(len(trees), MANY)
    slots = np.argsort(-goal, kind="stable") if order is None else np.array(order)
    return slo_select(
        slots, goal, most_to_goal, everything, everything, budget, 8,
        given_.size, given_.depth, given_.probability,
    )  # fmt: skip


def random_tree(rng: np.random.Generator, most: int) -> list[tuple[int, int, float]]:
    """Candidates by layer; path probabilities are binary fractions, so every sum is exact."""
    tree: list[tuple[int, int, float]] = []
    for depth in (1, 2, 3):
        above = [i for i, node in enumerate(tree) if node[1] == depth - 1] if depth > 1 else [-1]
        for parent in sorted(rng.choice(above, int(rng.integers(0, 4))).tolist() if above else []):
            if len(tree) < most:
                chance = tree[parent][2] if parent >= 0 else 1.0
                tree.append((parent, depth, chance * int(rng.integers(1, 17)) / 16))
    return tree


def test_no_subtrees_are_better_and_infeasible_means_that_there_are_none() -> None:
    rng = np.random.default_rng(0)
    feasible = 0
    for _ in range(2500):
        trees = [random_tree(rng, 5) for _ in range(int(rng.integers(1, 4)))]
        need = (rng.integers(0, 24, len(trees)) / 8).tolist()
        budget = int(rng.integers(0, 9))
        kept, expected = select(trees, need, budget)
        best = best_expected(trees, need, budget)
        assert (best is not None) == bool((expected >= need).all())
        assert kept.sum() <= budget
        for s, i in np.argwhere(kept).tolist():
            parent = trees[s][i][0]
            assert i < len(trees[s]) and (parent < 0 or kept[s, parent])
        if best is not None:
            feasible += 1
            assert expected.sum() == best
    assert 800 < feasible < 1900  # both happen often


def test_a_worse_order_of_nodes_would_be_found_out() -> None:
    """Negative control: throughput alone is not optimal under needs, and brute force sees it."""
    trees = [[(-1, 1, 0.5)], [(-1, 1, 0.75), (0, 2, 0.625)]]
    assert best_expected(trees, [1.5, 0.0], 2) == 1.5 + 1.75
    assert select(trees, [0.0, 0.0], 2)[1].tolist() == [1.0, 1.75 + 0.625]
    assert select(trees, [1.5, 0.0], 2)[1].tolist() == [1.5, 1.75]


# Figure 5 of the paper: n = 2, B = 8, d = 3, w = 2, needs of 0.6 and 0.8 over the draft nodes, that
# is 1.6 and 1.8 with the root. It gives 0.7 to the first tree and 0.5 and 0.4 to the second; the
# other probabilities are ours.
FIGURE_5: tuple[Tree, Tree] = (
    ((-1, 1, 0.7), (-1, 1, 0.2), (0, 2, 0.3), (0, 2, 0.25), (2, 3, 0.15), (3, 3, 0.1)),
    ((-1, 1, 0.5), (-1, 1, 0.4), (0, 2, 0.35), (1, 2, 0.3), (2, 3, 0.2), (3, 3, 0.1)),
)


def test_figure_5_three_nodes_for_the_needs_and_three_for_throughput() -> None:
    # 8 tokens less 2 roots. 1.7 ≥ 1.6 takes one node, 1 + 0.5 + 0.4 ≥ 1.8 takes two.
    need = [1.6, 1.8]
    kept, expected = select(FIGURE_5, need, 3)
    assert np.argwhere(kept).tolist() == [[0, 0], [1, 0], [1, 1]]
    assert (expected >= need).all()
    kept, expected = select(FIGURE_5, need, 8 - 2)
    # The three likeliest of the rest: 0.35 of the second tree, then 0.3 of each.
    assert np.argwhere(kept).tolist() == [[0, 0], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3]]
    assert expected.sum() == pytest.approx(best_expected(FIGURE_5, need, 6))
    assert expected.sum() == pytest.approx(2 + 0.7 + 0.5 + 0.4 + 0.35 + 0.3 + 0.3)
    assert best_expected(FIGURE_5, need, 2) is None
    assert not (select(FIGURE_5, need, 2)[1] >= need).all()


def test_short_of_budget_the_largest_need_is_served_first() -> None:
    trees = [[(-1, 1, 0.5)]] * 4
    need = [1.25, 2.0, 1.5, 0.0]
    served = [select(trees, need, budget)[0][:, 0].tolist() for budget in range(5)]
    assert served == [
        [False, False, False, False],
        [False, True, False, False],
        [False, True, True, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
    # The public code's order is the reverse.
    assert select(trees, need, 1, order=[3, 0, 2, 1])[0][:, 0].tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_the_limit_of_a_request_holds_in_the_slo_phase_alone() -> None:
    tree = [(-1, 1, 0.5), (0, 2, 0.25), (1, 3, 0.125)]
    kept, _ = select([tree, [(-1, 1, 0.375)]], [2.0, 0.0], 2, most_to_goal=1)
    assert np.argwhere(kept).tolist() == [[0, 0], [1, 0]]
    assert select([tree, [(-1, 1, 0.375)]], [2.0, 0.0], 4, most_to_goal=1)[0].sum() == 4


@given(cases(replicas=1))
def test_the_kernel_equals_its_twin(case: Case) -> None:
    trees, rng, slots = random_trees(case), case.rng, case.limits.slots
    order = rng.permutation(slots)[: int(rng.integers(0, slots + 1))]
    goal = rng.choice([0.0, 1.0, 1.2, 1.5, 2.0, 3.0, 9.0], slots)
    most_to_goal, budget = int(rng.integers(0, 9)), int(rng.integers(-1, 25))
    most, width = rng.integers(0, 9, slots), rng.choice([1, 2, 4, MANY], slots)
    kept, expected = slo_select(
        order, goal, most_to_goal, most, width, budget, case.limits.max_depth,
        trees.size[0], trees.depth[0], trees.probability[0],
    )  # fmt: skip
    fields = trees.parent, trees.depth, trees.probability
    as_trees = [
        list(zip(*(f[0, s, : trees.size[0, s]].tolist() for f in fields), strict=True))
        for s in range(slots)
    ]
    listed, goals, mosts, widths = (a.tolist() for a in (order, goal, most, width))
    wanted, tokens = twin(listed, goals, most_to_goal, mosts, widths, budget, as_trees)
    assert {(s, i) for s, i in np.argwhere(kept).tolist()} == wanted
    assert expected.tolist() == tokens
    for s, i in wanted:
        parent = as_trees[s][i][0]
        # A beam of that width would never have drafted the children of what it does not keep.
        assert parent < 0 or (s, parent) in wanted or widths[s] < trees.size[0, s]
