"""What Hedge reads off a verified tree, against twins and what smaller trees really emit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.hedge_outcomes import subtree_tokens
from engine.kernels.hedge_subtrees import mark_subtrees
from engine.protocol import (
    NODE_TIERS,
    Candidates,
    Controller,
    Floats,
    Ints,
    Limits,
    Outcome,
    View,
)
from policies import registry
from policies.hedge import TIERS, Hedge
from tests.tiny_recording import asked, replay_server
from tests.twins import hedge as twin

LIMITS = Limits(slots=1, max_depth=4, max_width=3, max_nodes=40)


def grown(rng: np.random.Generator, depth: int, width: int) -> Candidates:
    """A beam's candidates in one slot; path probabilities are binary fractions, ties are common."""
    parent: list[int] = []
    layer: list[int] = []
    chance: list[float] = []
    beam = [-1]
    for step in range(1, depth + 1):
        first = len(parent)
        for node in beam:
            above = 1.0 if node < 0 else chance[node]
            shares = -np.sort(-rng.integers(0, 6, width) / 16)  # some have fewer children
            for share in shares[shares > 0].tolist():
                parent.append(node)
                layer.append(step)
                chance.append(above * share)
        fresh = sorted(range(first, len(parent)), key=lambda i: (-chance[i], i))
        beam = fresh[:width]
    size, room = len(parent), LIMITS.max_candidates
    pad = [0] * (room - size)
    whole = np.zeros((1, room), np.int64)
    return Candidates(
        np.array([size]), np.array([parent + pad]), np.array([layer + pad]), whole,
        np.array([chance + pad], float),
    )  # fmt: skip


def tree_of(drafted: Candidates) -> twin.Tree:
    size, parent, depth, _, chance = drafted
    return twin.Tree(*(a[0, : size[0]].tolist() for a in (parent, depth, chance)))


def some_shapes(rng: np.random.Generator) -> list[twin.Shape]:
    drawn = [
        (int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 9)))
        for _ in range(int(rng.integers(1, 6)))
    ]
    return [(0, 1, 0), *dict.fromkeys(drawn)]


class Marked:
    """What the kernel makes of one slot."""

    def __init__(
        self, drafted: Candidates, steps: int, width: int, deepest: int,
        shapes: list[twin.Shape], wanted: int, most: int,
    ) -> None:  # fmt: skip
        grid = np.array(shapes)
        widths, beam = np.unique(grid[:, 1], return_inverse=True)
        beamed = np.stack([grid[:, 0], beam.ravel(), grid[:, 2]], axis=1)
        one, shape = np.ones(1, np.int64), drafted.parent.shape
        self.member, self.rank = np.full(shape, -1), np.full(shape, -1)
        self.kept = np.zeros(shape, np.bool_)
        self.known, self.verified = one.copy(), one.copy()
        mark_subtrees(
            one > 0, drafted.size, drafted.parent, drafted.depth, drafted.probability, steps * one,
            width * one, deepest * one, beamed, widths, wanted * one, most, self.member, self.rank,
            self.kept, self.known, self.verified,
        )  # fmt: skip


def bits(members: Any) -> int:
    return sum(1 << e for e in members)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_subtrees_and_their_tokens_equal_the_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, width = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    drafted, shapes = grown(rng, steps, width), some_shapes(rng)
    tree = tree_of(drafted)
    wanted = set(rng.choice(len(shapes), int(rng.integers(1, len(shapes) + 1)), replace=False))
    deepest, most = int(rng.integers(0, 6)), int(rng.integers(1, 41))
    got = Marked(drafted, steps, width, deepest, shapes, bits(wanted), most)
    members, kept, known = twin.marked(tree, (steps, width), deepest, shapes, wanted, most)
    size = int(drafted.size[0])
    for i in range(size):
        assert got.member[0, i] == bits(e for e, nodes in members.items() if i in nodes)
    assert set(np.flatnonzero(got.kept[0])) == set(kept) and got.verified[0] == len(kept) + 1
    assert got.known[0] == bits(known)
    assert [int(i) for i in np.argsort(got.rank[0, :size])] == tree.likeliest(range(size))

    # The target takes some path of kept nodes, and an outcome tells of it.
    path: list[int] = []
    while (open_ := [c for c in tree.children(path[-1] if path else -1) if c in kept]) and (
        rng.random() < 0.8
    ):
        path.append(int(rng.choice(open_)))
    within = told_within(got.rank[0], path)
    tokens = np.empty((1, len(shapes)))
    accepted = (np.arange(LIMITS.max_depth) < len(path))[None]
    fitting = subtree_tokens(
        np.ones(1, np.bool_), accepted, within[None], TIERS, drafted.size, drafted.parent,
        drafted.depth, drafted.probability, got.kept, got.rank, got.member, tokens,
    )  # fmt: skip
    expected, paths = twin.tokens_of(tree, kept, members, within.tolist(), NODE_TIERS, len(path))
    assert fitting[0] == paths >= 1
    for e, nodes in members.items():
        assert tokens[0, e] == pytest.approx(expected[e])
        if paths == 1:  # then nothing is left to expect
            assert tokens[0, e] == pytest.approx(1 + len(set(path) & nodes))


def told_within(rank: Ints, path: list[int]) -> Ints:
    """[D + 1, tiers] as `engine.kernels.walk.accepted_within` tells it, without an end."""
    found = np.ones((LIMITS.max_depth + 1, len(NODE_TIERS)), np.int64)
    for d in range(LIMITS.max_depth + 1):
        for t, tier in enumerate(NODE_TIERS):
            for node in path[:d]:
                if rank[node] >= tier:
                    break
                found[d, t] += 1
    return found


def test_a_narrow_beam_that_the_wide_one_passed_over_is_not_known() -> None:
    # Two children of the root, a (0.5) and b (0.4); a's are 0.1 and 0.09, b's 0.3 and 0.2. The beam
    # of two goes on from b's children, the chain from a's first, which nobody expanded.
    drafted = Candidates(
        np.array([6]), np.array([[-1, -1, 0, 0, 1, 1]]), np.array([[1, 1, 2, 2, 2, 2]]),
        np.zeros((1, 6), np.int64), np.array([[0.5, 0.4, 0.1, 0.09, 0.3, 0.2]]),
    )  # fmt: skip
    shapes: list[twin.Shape] = [(0, 1, 0), (2, 1, 2), (3, 1, 3), (3, 2, 9)]
    got = Marked(drafted, 3, 2, 9, shapes, 0b1111, 40)
    assert got.known[0] == 0b1011
    assert [i for i in range(6) if got.member[0, i] & 0b10] == [0, 2]


# -- against what smaller trees really emit --------------------------------------------------------


def test_shapes_would_have_emitted_what_they_emit_when_they_are_played() -> None:
    """By request and tokens emitted, wherever both were: replay's text is the same for any tree."""
    shapes = ((0, 1, 0), (1, 1, 1), (3, 1, 3), (2, 2, 4), (3, 4, 8))
    controller = Scouting(shapes)
    play(controller, 2)
    compared = exact = 0
    for e, (depth, width, nodes) in enumerate(shapes[1:], 1):
        real = Played(registry.make(f"eagle3({depth}, {width}, {nodes})"))
        play(real, 2)
        for at, emitted in real.emitted.items():
            if at in controller.told and controller.told[at][1] >> e & 1:
                tokens, _, fitting = controller.told[at]
                compared += 1
                if fitting == 1:
                    exact += 1
                    assert tokens[e] == emitted, (at, shapes[e])
                else:
                    assert 1.0 <= tokens[e] <= depth + 1
    assert compared > 60 and exact > 0.8 * compared


class Played(Controller):
    """Another controller, and what requests emitted by where they stood."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.emitted: dict[tuple[int, int], int] = {}

    def plan(self, view: View) -> Any:
        self.view = view
        return self.controller.plan(view)

    def observe(self, outcome: Outcome) -> None:
        for s in np.flatnonzero(outcome.ran & ~outcome.finished).tolist():
            at = int(self.view.request[s]), int(self.view.tokens_out[s])
            self.emitted[at] = int(outcome.accepted_length[s])


class Scouting(Hedge):
    """Everybody drafts the union, always; what it was told is kept by where requests stood."""

    def __init__(self, shapes: tuple[Any, ...]) -> None:
        super().__init__(shapes, probe=1)
        self.told: dict[tuple[int, int], tuple[Floats, int, int]] = {}

    def plan(self, view: View) -> Any:
        self.view = view
        plan = super().plan(view)
        self._wanted[:] = (1 << len(self.shapes)) - 1
        return plan._replace(
            depth=plan.depth * 0 + 3, width=plan.width * 0 + 4, nodes=plan.nodes * 0 + 40
        )

    def observe(self, outcome: Outcome) -> None:
        drafted, slots = self._candidates, len(outcome.ran)
        assert drafted is not None
        tokens = np.empty((slots, len(self.shapes)))
        told = outcome.ran & ~outcome.finished
        fitting = subtree_tokens(
            told, outcome.accepted, outcome.accepted_within, TIERS, drafted.size, drafted.parent,
            drafted.depth, drafted.probability, self._kept, self._rank, self._member, tokens,
        )  # fmt: skip
        for s in np.flatnonzero(told).tolist():
            at = int(self.view.request[s]), int(self.view.tokens_out[s])
            self.told[at] = tokens[s], int(self._known[s]), int(fitting[s])
        super().observe(outcome)


def play(controller: Any, requests: int) -> None:
    engine = replay_server().engine(asked(requests))
    controller.reset(engine.limits)
    while (view := engine.next_decision()) is not None:
        engine.run_iteration(view, controller)
