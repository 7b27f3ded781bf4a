"""Random engine state for the kernel tests: trees, slots, and ways to copy and compare them.

Hypothesis draws sizes and a seed; contents come from a generator, with few distinct probabilities
and tokens, so that ties and repeated tokens are common. What no kernel may read holds garbage.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from hypothesis import strategies as st

from engine.protocol import Bools, Limits
from engine.state import SlotState, TreeState, new_slots, new_trees

PROBABILITIES = (0.05, 0.2, 0.5, 0.5, 0.9, 1.0)
TOKENS = 7
State = TypeVar("State", bound=tuple)


class Case(NamedTuple):
    """The shape of one random input, and the generator that fills it."""

    rng: np.random.Generator
    replicas: int
    limits: Limits


@st.composite
def cases(draw: st.DrawFn, replicas: int = 3) -> Case:
    """One to `replicas` replicas of a few slots with small trees."""
    limits = Limits(
        slots=draw(st.integers(1, 4)),
        max_depth=draw(st.integers(1, 4)),
        max_width=draw(st.integers(1, 3)),
        max_nodes=draw(st.integers(1, 12)),
    )
    seed = draw(st.integers(0, 2**32 - 1))
    return Case(np.random.default_rng(seed), draw(st.integers(1, replicas)), limits)


def random_trees(case: Case, siblings_differ: bool = False) -> TreeState:
    """Candidates of every slot in order of depth, parents before children; nothing is kept."""
    rng, limits = case.rng, case.limits
    trees = new_trees(case.replicas, limits)
    most = limits.max_candidates
    trees.parent[:] = rng.integers(-1, most, trees.parent.shape)
    trees.depth[:] = rng.integers(1, limits.max_depth + 1, trees.depth.shape)
    trees.token[:] = rng.integers(0, TOKENS, trees.token.shape)
    trees.probability[:] = rng.random(trees.probability.shape)
    trees.rank[:] = rng.integers(0, most, trees.rank.shape)
    for r in range(case.replicas):
        for s in range(limits.slots):
            size = int(rng.integers(0, most + 1))
            trees.size[r, s] = size
            depths = np.sort(rng.integers(1, limits.max_depth + 1, size))
            for i in range(size):
                above = [j for j in range(i) if trees.depth[r, s, j] == depths[i] - 1]
                parent = int(rng.choice(above)) if above else -1
                depth = 1 if parent < 0 else int(trees.depth[r, s, parent]) + 1
                chance = float(rng.choice(PROBABILITIES))
                trees.parent[r, s, i], trees.depth[r, s, i] = parent, depth
                trees.probability[r, s, i] = chance * (
                    1.0 if parent < 0 else trees.probability[r, s, parent]
                )
                if siblings_differ:
                    earlier = int((trees.parent[r, s, :i] == parent).sum())
                    trees.token[r, s, i] = earlier
    _sort_by_depth(trees)
    return trees


def _sort_by_depth(trees: TreeState) -> None:
    """Reorder each slot's candidates by depth: a level without parents starts again at depth 1."""
    for r, s in np.ndindex(*trees.size.shape):
        size = int(trees.size[r, s])
        order = np.argsort(trees.depth[r, s, :size], kind="stable")
        place = np.empty(size, np.int64)
        place[order] = np.arange(size)
        for field in (trees.depth, trees.token, trees.probability):
            field[r, s, :size] = field[r, s, :size][order]
        parent = trees.parent[r, s, :size][order]
        trees.parent[r, s, :size] = [-1 if p < 0 else place[p] for p in parent]


def keep_some(case: Case, trees: TreeState, decoding: Bools) -> None:
    """Keep a random set that is closed under parents, of at most `max_nodes` a slot."""
    trees.kept[:] = False
    for r, s in np.argwhere(decoding):
        for i in range(int(trees.size[r, s])):
            parent = trees.parent[r, s, i]
            room = trees.kept[r, s].sum() < case.limits.max_nodes
            if (parent < 0 or trees.kept[r, s, parent]) and room:
                trees.kept[r, s, i] = case.rng.random() < 0.7


def random_flags(case: Case, chance: float = 0.8) -> Bools:
    """[R, S] of which most are set."""
    return case.rng.random((case.replicas, case.limits.slots)) < chance


def random_slots(case: Case, capacity: int = 64) -> SlotState:
    """Slots in the middle of their lives, with room for one more tree."""
    rng = case.rng
    slots = new_slots(case.replicas, case.limits, capacity)
    shape = slots.active.shape
    slots.decoding[:] = random_flags(case)
    slots.active[:] = slots.decoding | random_flags(case)
    slots.prompt_tokens[:] = rng.integers(1, 20, shape)
    slots.emitted[:] = rng.integers(1, 15, shape)
    slots.max_tokens[:] = slots.emitted + rng.integers(1, 8, shape)
    slots.context[:] = slots.prompt_tokens + slots.emitted - 1
    slots.text[:] = rng.integers(0, TOKENS, slots.text.shape)
    slots.last_token[:] = rng.integers(0, TOKENS, shape)
    slots.first_token_s[:] = rng.integers(0, 8, shape) / 4
    slots.tpot_objective_s[:] = rng.choice([0.125, 0.25, np.inf], shape)
    slots.promised_tpot_s[:] = rng.choice([0.125, 0.25, np.inf], shape)
    slots.valid_tokens[:] = rng.integers(1, 15, shape)
    slots.iterations[:] = rng.integers(0, 9, shape)
    slots.verified_nodes[:] = rng.integers(0, 99, shape)
    slots.draft_confidence[:] = rng.random(shape)
    slots.proposed[:] = 10 * rng.random(slots.proposed.shape)
    slots.accepted[:] = slots.proposed * rng.random(slots.proposed.shape)
    slots.since_proposed[:] = rng.integers(0, 9, slots.since_proposed.shape)
    stops = rng.integers(0, TOKENS, slots.stop.shape)
    slots.stop[:] = np.where(rng.random(slots.stop.shape) < 0.2, stops, -1)
    return slots


def copied(state: State) -> State:
    """A copy of a NamedTuple of arrays that shares no memory with it."""
    return type(state)(*(array.copy() for array in state))


def replica(state: State, r: int) -> State:
    """Replica r alone, still with a replica axis, as a copy."""
    return type(state)(*(array[r : r + 1].copy() for array in state))


def assert_same(got: tuple, wanted: tuple, names: tuple[str, ...] = ()) -> None:
    """Two NamedTuples of arrays are equal, entry by entry (only the fields in `names`, if any)."""
    fields: tuple[str, ...] = names or got._fields  # type: ignore[attr-defined]
    for name in fields:
        np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name), err_msg=name)
