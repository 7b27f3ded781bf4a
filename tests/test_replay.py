"""Replay emits and accepts what the live engine does, tree by tree, whatever it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from engine.loop import Engine
from engine.protocol import Bools, Candidates, Controller, Outcome, Plan, View
from engine.replay.packing import rounded
from engine.request import Request, Status
from tests.random_plans import RandomMasks, RandomPlans
from tests.tiny_recording import LIMITS, TOKENS, asked, live_server, recorded, replay_server


class Watched(Controller):
    """Does as another and keeps what came of it, by request."""

    def __init__(self, inner: Controller) -> None:
        self.inner = inner
        self.request = np.zeros(0, np.int64)
        self.seen: dict[int, list[tuple[int, ...]]] = {}
        self.outcomes: list[Outcome] = []

    def plan(self, view: View) -> Plan:
        self.request = view.request
        return self.inner.plan(view)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        for slot in np.flatnonzero(outcome.ran):
            line = outcome.accepted_length[slot], outcome.drafted[slot], outcome.verified[slot]
            within = outcome.accepted_within[slot].ravel()
            self.seen.setdefault(int(self.request[slot]), []).append((*line, *within))


class EveryTree(Controller):
    """Every depth and width in turn, another one in every slot."""

    def __init__(self, nodes: int) -> None:
        self.nodes, self.at = nodes, 0

    def plan(self, view: View) -> Plan:
        count = view.limits.slots
        tier = (self.at * count + np.arange(count)) * 29  # no factor of 72: neighbours differ
        self.at += 1
        return Plan(
            depth=tier % 9,
            width=1 + tier // 9 % 8,
            nodes=np.full(count, self.nodes),
            margin=np.ones(count),
            node_budget=count * self.nodes,
        )


class StoppingEarly(RandomPlans):
    """Random plans under random budgets that stop drafting at random."""

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools | None:
        return self.rng.random(view.limits.slots) < 0.8


def served(make: Callable[[list[Request]], Engine], controller: Controller) -> Watched:
    """Serve eight texts; they come out as recorded."""
    watched, requests = Watched(controller), asked()
    records = make(list(requests)).serve(watched)
    assert all(record.status is Status.FINISHED for record in records)
    _, recording = recorded()
    for request in requests:
        end = int(recording.first_token[request.text + 1])
        assert request.output == recording.tokens[end - TOKENS : end].tolist()
    return watched


@cache
def live_trees(nodes: int) -> Watched:
    """Every tree on the live engine."""
    return served(live_server().engine, EveryTree(nodes))


@pytest.mark.parametrize("nodes", [7, 64])
def test_every_tree_accepts_what_the_live_one_does(nodes: int) -> None:
    live, server = live_trees(nodes), replay_server()
    assert served(server.engine, EveryTree(nodes)).seen == live.seen
    # As a shard gives it back, with many ties that the recorded order must break.
    server.book = server.book._replace(probability=rounded(server.book.probability))
    assert served(server.engine, EveryTree(nodes)).seen == live.seen
    assert max(line[0] for lines in live.seen.values() for line in lines) > 2


def test_random_plans_and_stops_accept_what_live_ones_do() -> None:
    def controller() -> Controller:
        return StoppingEarly(np.random.default_rng(0))

    live = served(live_server().engine, controller())
    assert served(replay_server().engine, controller()).seen == live.seen


def test_other_drafts_are_told_from_the_recorded_ones() -> None:
    """The comparison can fail: where other tokens are drafted, other lengths are accepted."""
    server = replay_server()
    server.book = server.book._replace(token=(server.book.token + 1) % 64)
    assert served(server.engine, EveryTree(64)).seen != live_trees(64).seen


def test_a_chosen_mask_is_served_whatever_it_keeps() -> None:
    for seed in range(3):
        watched = served(replay_server().engine, RandomMasks(np.random.default_rng(seed)))
        assert max(o.drafted.max() for o in watched.outcomes) <= LIMITS.max_candidates


def test_a_margin_lets_recorded_near_misses_through_and_then_follows_the_text() -> None:
    def lengths(margin: float) -> tuple[int, int]:
        watched, requests = Watched(RandomPlans(np.random.default_rng(1), margin)), asked()
        records = replay_server().engine(list(requests)).serve(watched)
        assert all(r.output_tokens == TOKENS for r in records)
        let_through = sum(int(o.let_through.sum()) for o in watched.outcomes)
        _, recording = recorded()
        changed = sum(
            a != b
            for request in requests
            for a, b in zip(
                request.output,
                recording.tokens[: recording.first_token[request.text + 1]][-TOKENS:].tolist(),
                strict=True,
            )
        )
        return let_through, changed

    assert lengths(1.0) == (0, 0)
    let_through, changed = lengths(0.2)
    assert 0 < changed == let_through
