"""Drift of acceptance on replay: against its twin, by its statistics, and what it leaves alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.backends.protocol import new_children, new_choices
from engine.kernels.beam import grow, new_beam
from engine.kernels.walk import walk
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.replay.drift import WRONG, chance, comes_right, drift, episode_key
from engine.replay.lookup import Book, answer, new_cursor, offer_children, offer_roots, open_book
from engine.replay.server import ReplayServer
from engine.state import new_slots, new_trees
from engine.workload import Disturbance, Disturbances, DrawnRequests
from tests.test_replay_lookup import nodes_of
from tests.tiny_recording import asked, recorded, replay_server
from tests.twins.drift import accepted_under_drift, number

LIMITS = Limits(slots=1)


def always(kind: str, value: float) -> Disturbances:
    """One kind at one value, for ever."""
    return Disturbances([Disturbance(kind, 0.0, math.inf, value)])


class Trees(Controller):
    """Random trees for every slot, a margin for all; keeps what came of them."""

    def __init__(self, margin: float = 1.0, seed: int = 0) -> None:
        self._rng, self._margin = np.random.default_rng(seed), margin
        self.outcomes: list[Outcome] = []

    def plan(self, view: View) -> Plan:
        depth, width, nodes = (int(n) for n in self._rng.integers(1, (8, 9, 40)))
        return uniform_plan(view.limits, depth, width, nodes, self._margin)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


# -- against the twin --------------------------------------------------------------------------


def test_a_depths_number_is_its_own_and_its_twins() -> None:
    seen = set()
    for key in (0, 7, 2**64 - 1):
        for place in ((0, 0, 1), (3, 11, 8), (3, 12, 7), (4, 11, 8), (500, 95, 2)):
            seen.add(found := chance(np.uint64(key), *place))
            assert found == number(key, *place) and 0 < found < 1
    assert len(seen) == 15


def test_episodes_have_keys_of_their_own() -> None:
    first = asked(4)
    assert episode_key(first) == episode_key(asked(4))
    later, other = [replace(r, arrival_s=r.arrival_s + 1) for r in first], asked(5)
    assert len({int(episode_key(each)) for each in (first, later, other, [])}) == 4


@pytest.mark.parametrize("acceptance", [0.0, 0.55, 1.4, 2.0])
def test_accepted_paths_are_the_twins(acceptance: float) -> None:
    """At every third place of three texts, under random plans."""
    _, recording = recorded()
    book, rng, key = open_book(recording), np.random.default_rng(1), np.uint64(99)
    lengths, changed = [], 0
    for text in range(3):
        end = int(recording.first_token[text + 1])
        output = recording.tokens[end - 40 : end].tolist()
        for emitted in range(1, 30, 3):
            depth, width, kept = (int(n) for n in rng.integers(1, (8, 9, 40)))
            plan = depth, width, kept
            path, drafted, known = path_of(book, text, emitted, plan, acceptance, key)
            nodes = nodes_of(recording, text, emitted)
            numbers = [number(99, text, emitted - 1, d) for d in range(1, depth + 1)]
            following = output[emitted : emitted + depth]
            expected = accepted_under_drift(nodes, drafted, known, following, acceptance, numbers)
            assert path == expected
            lengths.append(len(path))
            changed += path != accepted_under_drift(nodes, drafted, known, following, 1.0, numbers)
    assert changed >= 2 and (max(lengths) > 0) == (acceptance > 0)


def path_of(
    book: Book, text: int, emitted: int, plan: tuple[int, int, int], acceptance: float,
    key: np.uint64,
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """Recorded nodes accepted, drafted and kept of a place's tree, as the backend finds them."""
    depth, width, kept = plan
    slots, trees, choices = new_slots(1, LIMITS, 192), new_trees(1, LIMITS), new_choices(1, LIMITS)
    beam, children, cursor = new_beam(1, LIMITS), new_children(1, LIMITS), new_cursor(1, LIMITS)
    one, widths = np.ones((1, 1), np.bool_), np.full((1, 1), width)
    cursor.text[0, 0], slots.emitted[0, 0], slots.max_tokens[0, 0] = text, emitted, 40
    offer_roots(one, slots.context, slots.emitted, book, cursor, *children, slots.draft_entropy)
    grow(1, one, widths, *children, trees, beam)
    for step in range(1, depth):
        offer_children(step, slots.context, slots.emitted, book, cursor, trees, beam, *children)
        grow(step + 1, one, widths, *children, trees, beam)
    size = int(trees.size[0, 0])
    best = np.argsort(-trees.probability[0, 0, :size], kind="stable")[:kept]
    trees.kept[0, 0, best] = True
    answer(one, slots.context, slots.emitted, book, cursor, trees, choices)
    if acceptance != 1.0:
        drift(acceptance, key, one, slots.emitted, book, cursor, trees, choices)
    walk(one, choices, np.ones((1, 1)), slots, trees)
    node = cursor.node[0, 0]
    accepted = trees.path[0, 0, : trees.path_length[0, 0]]
    return node[accepted].tolist(), node[:size].tolist(), node[best].tolist()


# -- statistics ----------------------------------------------------------------------------------

LIKELY, PLACES, DEEPEST = 0.55, 4000, 3
CHAINS = Limits(slots=PLACES, max_depth=DEEPEST, max_width=1, max_nodes=DEEPEST)


def calibrated_book() -> Book:
    """One text of zeros; behind each of its places a chain as often right as it is likely."""
    right = np.random.default_rng(3).random((PLACES, DEEPEST)) < LIKELY
    chain = np.arange(DEEPEST)
    first_node = DEEPEST * np.arange(PLACES + 1)
    return Book(
        first_output=np.zeros(1, np.int64),
        outputs=np.array([PLACES + DEEPEST]),
        tokens=np.zeros(PLACES + DEEPEST, np.int32),
        first_place=np.array([0, PLACES]),
        first_node=first_node,
        parent=np.tile(np.array([255, *chain[:-1]], np.uint8), PLACES),
        depth=np.tile((chain + 1).astype(np.uint8), PLACES),
        widths=np.full(first_node[-1], 255, np.uint8),
        token=np.where(right, 0, 1).astype(np.int32).ravel(),
        probability=np.tile((LIKELY ** (chain + 1)).astype(np.float32), PLACES),
        log_ratio=np.zeros(first_node[-1], np.uint16),
        half=np.zeros(1, np.float32),
        entropy=np.zeros(PLACES, np.float32),
        divergence=np.zeros(PLACES, np.float32),
    )


def shares(acceptance: float) -> list[float]:
    """How often each position is accepted where all before it are, a slot at every place."""
    book, one = calibrated_book(), np.ones((1, PLACES), np.bool_)
    slots, trees = new_slots(1, CHAINS, 1), new_trees(1, CHAINS)
    beam, children, cursor = new_beam(1, CHAINS), new_children(1, CHAINS), new_cursor(1, CHAINS)
    choices, width = new_choices(1, CHAINS), np.ones((1, PLACES), np.int64)
    cursor.text[:], slots.emitted[0], slots.max_tokens[:] = 0, np.arange(1, PLACES + 1), 2 * PLACES
    offer_roots(one, slots.context, slots.emitted, book, cursor, *children, slots.draft_entropy)
    grow(1, one, width, *children, trees, beam)
    for step in range(1, DEEPEST):
        offer_children(step, slots.context, slots.emitted, book, cursor, trees, beam, *children)
        grow(step + 1, one, width, *children, trees, beam)
    trees.kept[:] = True
    answer(one, slots.context, slots.emitted, book, cursor, trees, choices)
    if acceptance != 1.0:
        drift(acceptance, np.uint64(5), one, slots.emitted, book, cursor, trees, choices)
    walk(one, choices, np.ones((1, PLACES)), slots, trees)
    reached = (trees.path_length >= np.arange(DEEPEST + 1)[:, None]).sum(1)
    return (reached[1:] / reached[:-1]).tolist()


def test_acceptance_by_position_is_multiplied() -> None:
    """Within 0.05, four standard errors of the last position; the undrifted shares are not."""
    plain = shares(1.0)
    assert plain == pytest.approx([LIKELY] * DEEPEST, abs=0.05)
    for factor in (0.6, 0.9, 1.3):
        for share, expected in zip(shares(factor), plain, strict=True):
            assert share == pytest.approx(factor * expected, abs=0.05)
    assert all(abs(share - 1.3 * LIKELY) > 0.1 for share in plain)


def test_what_is_certain_comes_right_for_certain() -> None:
    assert comes_right(0.999, 1.001, 1.0) and comes_right(0.999, 2.0, 0.5)
    assert not comes_right(0.9, 1.1, 0.5) and comes_right(0.09, 1.1, 0.5)


# -- on the engine -------------------------------------------------------------------------------


def served(
    disturbances: Disturbances | None, margin: float = 1.0, server: ReplayServer | None = None
) -> tuple[Trees, list, list]:
    """Eight requests: the trees, the texts and the records."""
    trees, requests = Trees(margin), asked(8, 30, 0.01)
    engine = (server or replay_server()).engine(requests, disturbances=disturbances)
    records = engine.serve(trees)
    return trees, [request.output for request in requests], records


def test_drift_changes_how_much_is_accepted_and_never_the_text() -> None:
    (plain, texts, _), tokens = served(None), []
    for factor in (0.0, 0.5, 1.5, 2.0):
        trees, same, _ = served(always("acceptance", factor))
        assert same == texts
        lengths = [length for o in trees.outcomes for length in o.accepted_length[o.ran]]
        tokens.append(np.mean(lengths))
        assert factor > 0 or set(lengths) == {1}
    usual = np.mean([length for o in plain.outcomes for length in o.accepted_length[o.ran]])
    assert tokens[0] < tokens[1] < usual < tokens[2] <= tokens[3]


def test_a_margin_lets_no_spoilt_draft_through() -> None:
    let = {f: served(always("acceptance", f), 1e-9)[0].outcomes for f in (0.0, 0.999999)}
    assert sum(int(o.let_through.sum()) for o in let[0.999999]) > 0
    assert sum(int(o.let_through.sum()) for o in let[0.0]) == 0
    assert WRONG < 0


@pytest.mark.parametrize("kind", ["acceptance", "draft_time"])
def test_what_is_over_or_still_to_come_changes_nothing(kind: str) -> None:
    _, _, plain = served(None)
    over = Disturbances([Disturbance(kind, 1e6, 2e6, 0.5)])
    assert list(map(repr, served(over)[2])) == list(map(repr, plain))
    assert list(map(repr, served(always(kind, 0.5))[2])) != list(map(repr, plain))


def test_drawn_requests_bring_their_drift_along() -> None:
    drawn = DrawnRequests(asked(8, 30, 0.01), always("acceptance", 0.0))
    trees = Trees()
    replay_server().engine(drawn).serve(trees)
    assert max(int(o.accepted_length.max()) for o in trees.outcomes) == 1
