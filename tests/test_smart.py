"""SMART's marginal rule: by hand, against all subtrees, and against its twin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from engine.errors import UserError
from engine.kernels.paying import costs, draft_paying, keep_paying, lower_hull, verify_paying
from engine.protocol import Candidates, Floats, Limits
from policies import registry
from policies.smart import Smart
from tests.priced_views import priced_view
from tests.random_trees import Case, cases, random_trees
from tests.twins.keep_paying import best_rate
from tests.twins.keep_paying import keep_paying as twin
from tests.twins.lower_hull import lower_hull as hull_twin

LIMITS = Limits(slots=2, max_depth=3, max_width=2)
Tree = list[tuple[int, int, float]]
"""Parent, depth and path probability of each candidate."""


def flat(trees: Sequence[Tree]) -> Candidates:
    """The trees as a controller is given them."""
    size = np.array([len(tree) for tree in trees])
    parent, depth = (np.full((len(trees), max(1, *size)), -1) for _ in range(2))
    chance = np.zeros(parent.shape)
    for s, tree in enumerate(trees):
        for i, node in enumerate(tree):
            parent[s, i], depth[s, i], chance[s, i] = node
    return Candidates(size, parent, depth, np.zeros_like(parent), chance)


def random_tree(rng: np.random.Generator, most: int) -> Tree:
    """Candidates by layer; path probabilities are binary fractions, so every sum is exact."""
    tree: Tree = []
    for depth in (1, 2, 3):
        above = [i for i, node in enumerate(tree) if node[1] == depth - 1] if depth > 1 else [-1]
        for parent in sorted(rng.choice(above, int(rng.integers(0, 4))).tolist() if above else []):
            if len(tree) < most:
                chance = tree[parent][2] if parent >= 0 else 1.0
                tree.append((parent, depth, chance * int(rng.integers(1, 17)) / 16))
    return tree


def taken(chances: list[float], tokens: float, seconds: list[float], discount: float) -> list[bool]:
    """Of one slot's candidates."""
    kept = np.zeros((1, len(chances)), np.bool_)
    count, expected = keep_paying(
        np.array([0]), np.array([len(chances)]), np.array([chances]), tokens, np.array(seconds),
        discount, np.array([len(chances)]), kept,
    )  # fmt: skip
    assert count.tolist() == kept.sum(1).tolist()
    assert expected == pytest.approx(tokens + sum(np.array(chances)[kept[0]]))
    return kept[0].tolist()


def test_the_rule_by_hand() -> None:
    # L = 1 at 10 s, 1 s a node. 0.5: 0.8 · 0.5 / 1 = 0.4 > 1 / 10. Then 0.2: 0.16 > 1.5 / 11, which
    # is 0.136. Then 0.17: 0.136 is not above 1.7 / 12 = 0.1417.
    seconds = [10.0, 11, 12, 13, 14]
    assert taken([0.5, 0.17, 0.2, 0.1], 1.0, seconds, 0.8) == [True, False, True, False]
    # Without the discount 0.17 passes: 0.17 > 0.1417; 0.1 does not: 0.1 < 1.87 / 13 = 0.1438.
    assert taken([0.5, 0.17, 0.2, 0.1], 1.0, seconds, 1.0) == [True, True, True, False]
    assert taken([0.1, 0.01], 1.0, [10.0, 10, 10], 0.8) == [True, True]  # what is free
    assert taken([0.1], 1.0, [10.0, 11], 1.0) == [False]  # equal is not above
    assert taken([], 1.0, [10.0], 0.8) == []


def test_costs_are_on_the_lines_between_the_corners() -> None:
    # 1 s to 2 tokens, 3 s at 4, 7 s from 5 on; 2 rows of half a second, and one more each.
    corners = np.array([2.0, 4.0, 5.0]), np.array([1.0, 3.0, 7.0])
    assert costs(*corners, 1, 5, 0.5, 2, 1).tolist() == [2.0, 2.5, 4.0, 5.5, 10.0, 10.5]
    assert costs(*corners, 4, 1, 0.5, 2, 0).tolist() == [4.0, 8.0]
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = np.cumsum(rng.integers(1, 9, 6)).astype(float), np.sort(rng.random(6))
        first, more = rng.integers(0, 40, 2).tolist()
        line = np.interp(first + np.arange(more + 1), x, y)
        assert np.array_equal(costs(x, y, first, more, 0.0, 0, 0), line)


def convex(rng: np.random.Generator, count: int) -> Floats:
    """Seconds with 0…count nodes, in binary fractions."""
    rises = np.sort(rng.integers(0, 40, count)) / 16
    return rng.integers(1, 8) + np.concatenate(([0.0], np.cumsum(rises)))


def test_no_subtrees_are_faster() -> None:
    rng = np.random.default_rng(0)
    some = 0
    for _ in range(400):
        trees = [random_tree(rng, 4) for _ in range(int(rng.integers(1, 4)))]
        drafted = flat(trees)
        count = int(drafted.size.sum())
        seconds = convex(rng, count)
        kept = np.zeros(drafted.probability.shape, np.bool_)
        sizes, tokens = keep_paying(
            np.zeros_like(drafted.size), drafted.size, drafted.probability, float(len(trees)),
            seconds, 1.0, drafted.size, kept,
        )  # fmt: skip
        for s, i in np.argwhere(kept).tolist():
            parent = trees[s][i][0]
            assert parent < 0 or kept[s, parent]
        nodes = [[(parent, chance) for parent, _, chance in tree] for tree in trees]
        best = best_rate(nodes, seconds.tolist())
        assert tokens / seconds[sizes.sum()] == pytest.approx(best, rel=1e-12)
        some += 0 < sizes.sum() < count
    assert some > 100


def test_all_subtrees_would_find_a_worse_rule_out() -> None:
    """Negative control: with the discount, the rule takes too few."""
    seconds = [10.0, 11, 12, 13]
    kept = taken([0.5, 0.2, 0.17], 1.0, seconds, 0.8)
    best = best_rate([[(-1, 0.5), (-1, 0.2), (-1, 0.17)]], seconds)
    assert (1 + np.array([0.5, 0.2, 0.17])[kept].sum()) / seconds[sum(kept)] < best


@given(cases(replicas=1))
def test_the_kernel_equals_its_twin(case: Case) -> None:
    trees, rng = random_trees(case), case.rng
    size = trees.size[0]
    first = rng.integers(0, size + 1)
    seconds = convex(rng, int((size - first).sum()))
    discount, tokens = float(rng.choice([0.5, 0.8, 1.0])), float(rng.integers(1, 5))
    kept = np.zeros(trees.probability[0].shape, np.bool_)
    sizes, expected = keep_paying(
        first, size, trees.probability[0], tokens, seconds, discount, size, kept
    )
    wanted, total = twin(
        first.tolist(), size.tolist(), trees.probability[0].tolist(), tokens, seconds.tolist(),
        discount,
    )  # fmt: skip
    assert {(s, i) for s, i in np.argwhere(kept).tolist()} == wanted
    assert sizes.tolist() == kept.sum(1).tolist() and expected == pytest.approx(total)


def hull(x: Floats, y: Floats) -> Floats:
    """Corners [2, n]."""
    corners = np.zeros((2, len(x)))
    return corners[:, : lower_hull(x, y, corners)]


def test_the_hull_is_its_twins() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):  # whole numbers, so that points lie on a line and none is rounded
        x, y = np.cumsum(rng.integers(1, 4, 9)).astype(float), rng.integers(0, 6, 9).astype(float)
        found = hull(x, y).T.tolist()
        points = list(zip(x.tolist(), y.tolist(), strict=True))
        assert [tuple(corner) for corner in found] == hull_twin(points)


@given(cases(replicas=1))
def test_drafting_and_verifying_take_what_the_twin_takes(case: Case) -> None:
    trees, rng = random_trees(case), case.rng
    size, chance, slots = trees.size[0], trees.probability[0], len(trees.size[0])
    curve = np.array([1.0, 500.0]), np.array([1.0, 40.0])
    first, row_s, rows = rng.integers(0, size + 1), float(rng.integers(0, 3)) / 8, 7
    depth, width = rng.integers(1, 4, slots), rng.integers(1, 5, slots)
    drafts, verified, tokens = first.copy(), int(rng.integers(1, 9)), 3.0
    seconds = costs(*curve, verified, int((size - first).sum()), row_s, rows, 1)
    wanted, total = twin(
        first.tolist(), size.tolist(), chance.tolist(), tokens, seconds.tolist(), 0.8
    )
    going = np.zeros(slots, np.bool_)
    found = draft_paying(
        drafts, size, chance, tokens, 0.8, *curve, verified, row_s, rows, 2, depth, width, going
    )
    on = sorted({s for s, _ in wanted})
    assert np.flatnonzero(going).tolist() == on and drafts.tolist() == size.tolist()
    more = sum(int(width[s]) for s in on if depth[s] > 2)
    assert found == (pytest.approx(total), verified + len(wanted), rows + more)

    decoding = rng.random(slots) < 0.8
    last, requests = np.where(decoding, size, 0), int(decoding.sum())
    most_kept, kept = rng.integers(1, 5, slots), np.zeros(chance.shape, np.bool_)
    seconds = costs(*curve, requests, int(last.sum()), row_s, rows, 0)
    wanted, _ = twin(
        [0] * slots, last.tolist(), chance.tolist(), float(requests), seconds.tolist(), 0.8
    )
    verify_paying(decoding, size, chance, 0.8, *curve, row_s, rows, most_kept, kept)
    for s in range(slots):  # of equals the one drafted first
        own = sorted((i for t, i in wanted if t == s), key=lambda i: (-chance[s, i], i))
        assert np.flatnonzero(kept[s]).tolist() == sorted(own[: most_kept[s]])


def test_the_hull_is_convex_and_never_above() -> None:
    # The staircase 0, 0, 3, 3, 9 has corners at 0, 1, 3 and 4: slopes 0, 1.5 and 6.
    x, y = hull(np.arange(5.0), np.array([0.0, 0, 3, 3, 9]))
    assert x.tolist() == [0, 1, 3, 4] and y.tolist() == [0, 0, 3, 9]
    rng = np.random.default_rng(0)
    for _ in range(50):
        points = np.cumsum(rng.random(17) ** 4)
        x, y = hull(np.arange(17.0), points)
        assert (np.diff(np.diff(y) / np.diff(x)) > 0).all()
        assert (np.interp(np.arange(17), x, y) <= points + 1e-12).all()
        assert x[0] == 0 and x[-1] == 16 and np.isin(y, points).all()


def beams(layers: list[list[list[float]]]) -> Candidates:
    """Candidates by layer, slot and node, each the child of the first one above."""
    trees = []
    for slot in range(len(layers[0])):
        tree: Tree = []
        above = -1
        for depth, layer in enumerate(layers, 1):
            begun = len(tree)
            tree += [(above, depth, chance) for chance in layer[slot]]
            above = begun
        trees.append(tree)
    return flat(trees)


def test_a_whole_decision_by_hand() -> None:
    # Two requests; verification takes 2 s a token. The full beam, depth 3 and width 2, drafts 3
    # steps with 2 · (1 + 2 · 2) = 10 rows: 3 + 1 s, and 10 s for all else: 14 / 10 = 1.4 s a row.
    # Roots are 2 tokens for 2 · 1.4 + 4 = 6.8 s: 0.294 a second. One more node costs 1.4 + 2 s.
    view = priced_view(2, 2.0 * np.arange(40), LIMITS)
    controller = Smart(discount=1.0, depth=3, width=2, nodes=10)
    controller.reset(LIMITS)
    plan = controller.plan(view)
    assert [set(a.tolist()) for a in plan[:3]] == [{3}, {2}, {10}]
    # 0.9 / 3.4 = 0.265 is not above 0.294, though free of charge it would be: nobody goes on.
    first = [[0.9, 0.1], [0.7, 0.2]]
    assert not controller.extend(view, plan, 1, beams([first])).any()
    # Verification for nothing: 2 / 2.8 = 0.714; 0.9 / 1.4 = 0.643.
    free = priced_view(2, np.zeros(40), LIMITS)
    assert not controller.extend(free, controller.plan(free), 1, beams([first])).any()
    # A base of 30 s: roots 2 / (2.8 + 30) = 0.061. 0.9 / 1.4 passes, 0.7 / 1.4 > 2.9 / 34.2 does,
    # 0.2 / 1.4 = 0.143 > 3.6 / 35.6 = 0.101, but 0.1 / 1.4 = 0.071 < 3.8 / 37 = 0.103.
    based = priced_view(2, np.full(40, 30.0), LIMITS)
    plan = controller.plan(based)
    assert controller.extend(based, plan, 1, beams([first])).tolist() == [True, True]
    # Six rows by now, two for each who goes on, and three nodes: 3.8 / (8.4 + 30) is 0.099.
    # 0.6 / 1.4 passes, 0.1 / 1.4 = 0.071 does not: the second stops.
    second = [[0.6], [0.1]]
    both = beams([first, second])
    assert controller.extend(based, plan, 2, both).tolist() == [True, False]
    # Eight rows were drafted, 11.2 s. Free to verify, everything is kept.
    assert controller.select(based, plan, both).sum() == 6
    assert controller._rows == 8
    # At 10 s a node: 0.9 / 10 > 2 / (11.2 + 30) = 0.049, 0.7 / 10 > 2.9 / 51.2 = 0.057,
    # 0.6 / 10 > 3.6 / 61.2 = 0.0588; 0.2 / 10 is not above 4.2 / 71.2.
    controller._curve = np.array([2.0, 20.0]), np.array([30.0, 210.0])
    kept = controller.select(based, plan, both)
    assert np.argwhere(kept).tolist() == [[0, 0], [0, 2], [1, 0]]


def test_no_more_nodes_than_planned() -> None:
    view = priced_view(2, np.full(40, 30.0), LIMITS)
    controller = Smart(discount=1.0, depth=1, width=2, nodes=1)
    controller.reset(LIMITS)
    plan = controller.plan(view)
    assert plan.nodes.tolist() == [1, 1]
    kept = controller.select(view, plan, beams([[[0.5, 0.4], [0.3, 0.45]]]))
    assert kept.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("smart(discount=0)", "discount is 0"),
        ("smart(discount=1.5)", "discount is 1.5"),
        ("smart(depth=0)", "depth is 0"),
        ("smart(nodes=2.5)", "nodes is 2.5"),
    ],
)
def test_bad_parameters_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        registry.make(spec)
    assert says in str(caught.value)
