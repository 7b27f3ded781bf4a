"""Kernels of the fleet, each against the plain code whose rule it follows."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from engine.classes import ClassTable, SLOClass
from engine.orders import ORDERS, OrderName, Waiting, place, promises_of
from engine.profile.cost_model import Curve, PassCost
from engine.protocol import Limits
from engine.replay.fleet.costs import PASSES, cost_s, step_watts, tabulate
from engine.replay.fleet.ending import attained
from engine.replay.fleet.filling import order_keys
from engine.replay.fleet.state import (
    REQUEST,
    SLOT,
    TALLY,
    TEXT,
    Book,
    FleetPlan,
    class_records,
    find_paths,
    new_scratch,
    shapes,
)
from engine.replay.fleet.trees import look_up, share_budget
from engine.replay.fleet.waiting import goes_before
from engine.request import Request, RequestRecord, Status
from envs.fleet_kernels import Tiers, pay_of, reward_parts, take_actions
from envs.reward import PARTS, GoodputReward, Standing, Tally
from policies.actions import ActionTable
from tests.tiny_recording import known_profile, recorded, replay_server
from tests.twins.plan_tree import accepted, path_probability, plan_tree
from tests.twins.plan_tree import share_budget as share_twin
from tests.twins.replay_children import ROOT, Recorded

NONE = float("inf")
SHAPE = ("parent", "depth", "widths")
TABLE = ClassTable(
    (
        SLOClass("a", 1.2, ttft_ratio=8.0, queue_age_ratio=12.0, priority=2),
        SLOClass("b", 2.0, completion_ratio=40.0, priority=1),
        SLOClass("c", NONE),
    )
)


def random_place(rng: np.random.Generator) -> list[Recorded]:
    """Nodes in rank order, some as likely as others; a node's parent has all of its widths."""
    nodes: list[Recorded] = []
    chances = np.sort(rng.choice([1.0, 0.5, 0.25, 0.125, 0.01], int(rng.integers(0, 40))))[::-1]
    for chance in chances.tolist():
        deeper = [i for i, node in enumerate(nodes) if node.depth < 5]
        above = int(rng.choice([ROOT, *deeper]))
        depth, widths = (1, 255) if above == ROOT else (nodes[above].depth + 1, nodes[above].widths)
        token = sum(node.parent == above for node in nodes)  # siblings differ
        nodes.append(
            Recorded(above, depth, widths & int(rng.integers(1, 256)) or widths, token, chance, 0.0)
        )
    return nodes


def book_of(places: list[list[Recorded]], text: np.ndarray) -> Book:
    """The places as those of texts that say the same: behind output token 0 of each."""
    nodes, count, length = list(chain.from_iterable(places)), len(places), len(text) + 1
    texts = np.zeros(count, TEXT)
    texts["first_place"], texts["first_output"] = np.arange(count), length * np.arange(count)
    book = Book(
        texts,
        np.tile(np.concatenate([[-1], text]), count).astype(np.int32),
        np.cumsum([0, *map(len, places)]),
        np.full((count, 9), ROOT, np.uint8),
        shapes(*(np.array([getattr(node, name) for node in nodes], np.uint8) for name in SHAPE)),
        np.array([node.parent for node in nodes], np.uint8),
        np.array([node.token for node in nodes], np.int32),
        np.array([node.probability for node in nodes], np.float32),
        np.empty(count),
    )
    find_paths(book, np.arange(count + 1), length * np.arange(count + 1))
    return book


def random_slots(rng: np.random.Generator, count: int) -> np.ndarray:
    """Slots with plans, each at a place of its own; some draft nothing."""
    slots = np.zeros(count, SLOT)
    slots["place"] = np.arange(count)
    slots["depth"], slots["width"] = rng.integers(0, 7, count), rng.integers(1, 9, count)
    slots["nodes"] = np.where(slots["depth"] > 0, rng.integers(1, 30, count), 0)
    return slots


def test_a_plans_tree_and_the_path_through_it() -> None:
    rng = np.random.default_rng(0)
    lengths = []
    for _ in range(150):
        nodes, text = random_place(rng), rng.integers(0, 2, 12)
        slot, book = random_slots(rng, 1)[0], book_of([nodes], text)
        kept = plan_tree(nodes, slot["depth"], slot["width"], slot["nodes"])
        assert look_up(slot, book, np.full(4, -1)) == (
            len(kept),
            max((nodes[i].depth for i in kept), default=0),
        )
        assert slot["path"] == accepted(nodes, kept, text.tolist())
        assert book.sure[0] == (path_probability(nodes, 0) if nodes else -1.0)
        lengths.append(int(slot["path"]))
    assert max(lengths) >= 3


def test_a_tree_that_was_looked_up_before_is_no_other() -> None:
    rng = np.random.default_rng(4)
    places, text = [random_place(rng) for _ in range(6)], rng.integers(0, 2, 12)
    book, memo = book_of(places, text), np.full(4, -1)
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    plans = [random_slots(rng, len(places)) for _ in range(8)]
    plans[0]["depth"], plans[1]["depth"] = 15, 16  # on both sides of what the memo has room for
    for slot in chain(*plans, *plans[::-1], *(np.repeat(slots, 2) for slots in plans)):
        at = tuple(int(slot[name]) for name in ("place", "depth", "width", "nodes"))
        seen = (*look_up(slot, book, memo), int(slot["path"]))
        fresh = look_up(slot, book, np.full(4, -1))
        assert seen == (*fresh, int(slot["path"])) == found.setdefault(at, seen)
    assert len(set(found.values())) > 10


def test_a_budget_goes_to_the_likeliest_nodes_of_the_batch() -> None:
    rng = np.random.default_rng(1)
    bound = 0
    for _ in range(80):
        places = [random_place(rng) for _ in range(4)]
        slots, budget = random_slots(rng, 4), int(rng.integers(-1, 40))
        trees = [
            plan_tree(nodes, slot["depth"], slot["width"], slot["nodes"])
            for nodes, slot in zip(places, slots, strict=True)
        ]
        scratch = new_scratch(Limits(), 1, 4)
        share_budget(slots, budget, book_of(places, np.zeros(12)), scratch)
        assert slots["nodes"].tolist() == share_twin(places, trees, budget)
        bound += sum(map(len, trees)) > budget
    assert bound > 20


@pytest.mark.parametrize("order", ["fcfs", "priority", "edf"])
def test_who_goes_before_whom(order: OrderName) -> None:
    rng = np.random.default_rng(2)
    times = np.sort(rng.integers(0, 12, 10).astype(float))
    rows = np.zeros(10, REQUEST)
    rows["arrival_s"], rows["slo_class"] = times, rng.integers(0, 3, 10)
    classes = class_records(TABLE, 0.5)
    rows["order_key"] = order_keys(order, times, rows["slo_class"], TABLE, classes)
    promises = promises_of(TABLE, 0.5)
    waiting = [
        Waiting(
            Request(i, int(row["slo_class"]), [1], 1, float(row["arrival_s"])),
            float(row["arrival_s"]),
        )
        for i, row in enumerate(rows)
    ]
    for clock_s in (12.0, 14.5, 30.0):
        keys = [place(ORDERS[order], w, promises[w.request.slo_class], clock_s) for w in waiting]
        for a, key_a in enumerate(keys):
            for b, key_b in enumerate(keys):
                assert goes_before(a, b, clock_s, rows, classes) == (key_a < key_b)


def test_costs_are_the_profiles_to_the_last_bit() -> None:
    profile = known_profile(recorded()[0])
    stairs = Curve(0.013, (0.0, 4.0, 30.0), (1e-3, 3e-4, 7e-4), (8.0, 64.0), (0.001, 0.017))
    verify = PassCost(stairs, 3e-7, 1.1e-9, 2.3e-4)
    power = replace(profile.power, tokens=(1.0, 7.0, 65.0), watts=(10.0, 17.3, 42.0))
    profile = replace(profile, verify=verify, power=power)
    costs = tabulate(profile, replay_server().settings)
    rng = np.random.default_rng(3)
    for _ in range(200):
        tokens, kv, requests = (int(n) for n in rng.integers(0, (33, 900, 5)))
        for kind, name in enumerate(PASSES):
            expected = getattr(profile, name).at(tokens, kv, requests)
            curve_s, terms = costs.curve_s[kind, tokens], costs.terms[kind]
            assert cost_s(curve_s, terms, tokens, kv, requests) == expected
    for x in (0.0, 1.0, 3.3, 7.0, 40.1, 65.0, 99.0):
        assert step_watts(costs, x) == np.interp(x, power.tokens, power.watts)


def test_objectives_are_judged_as_records_are() -> None:
    rng, classes = np.random.default_rng(4), class_records(TABLE, 0.5)
    seen = set()
    for _ in range(300):
        c, emitted = int(rng.integers(3)), int(rng.integers(1, 5))
        arrival, admitted, first, finish = np.cumsum(rng.exponential((1, 2, 2, 1))).tolist()
        row = np.zeros(1, REQUEST)[0]
        row["arrival_s"], row["admitted_s"], row["emitted"] = arrival, admitted, emitted
        row["first_token_s"], row["finish_s"] = first, finish
        of, tpot_s = classes[c], (finish - first) / (emitted - 1) if emitted > 1 else np.nan
        record = RequestRecord(
            0, c, Status.FINISHED, 1, emitted, arrival, admitted, first, finish, tpot_s,
            of["tpot_s"], of["ttft_s"], 0, 0, 0, of["completion_s"], of["queue_age_s"],
        )  # fmt: skip
        assert attained(row, of) == record.attained
        seen.add(record.attained)
    assert seen == {True, False}


def test_actions_and_rewards_follow_their_own_rules() -> None:
    table, rng = ActionTable(TABLE.names), np.random.default_rng(5)
    tiers = tiers_of(table)
    held = np.full((2, 3), 99)
    plan = FleetPlan(held.copy(), held.copy(), held.copy(), np.zeros(2, np.int64), np.ones(2))
    actions = rng.integers(0, table.nvec, (2, len(table.nvec)))
    switched = np.full(2, -1)
    assert take_actions(actions, np.array([True, False]), tiers, plan, switched) == -1
    assert switched.tolist() == [3, -1]  # who does not act changes nothing
    take_actions(actions, np.array([True, False]), tiers, plan, switched)
    assert switched.tolist() == [0, -1]
    actions[0, 1] = 1 - min(actions[0, 1], 1)  # another width for the first class
    take_actions(actions, np.array([True, False]), tiers, plan, switched)
    assert switched.tolist() == [1, -1]
    for part, expected in zip(plan[:3], table.decode(actions[0])[:3], strict=True):
        assert part[0].tolist() == expected.tolist() and (part[1] == 99).all()
    for column, wrong in ((0, 6), (1, -1), (2, 9), (11, 1)):
        bad = actions.copy()
        bad[1, column] = wrong
        assert take_actions(bad, np.array([True, True]), tiers, plan, switched) == 1
    assert plan.running.tolist() == [1.0, 1.0]

    priced = GoodputReward("integral", 2.0, 0.1, 0.3, 0.7, 0.01, 0.5)
    standing = Standing(late_tokens=41.5, waiting=0.3)
    for reward in (
        GoodputReward(),
        GoodputReward("rate", 3.0),
        priced,
        replace(priced, form="rate"),
    ):
        brought = np.zeros(3, TALLY)
        brought["busy_s"], brought["valid"], brought["missed"] = (
            (0.0, 0.3, 1.7),
            (0, 9, 2),
            (1, 0, 3),
        )
        brought["energy_joules"] = 0.0, 4.5, 77.0
        pay = pay_of(reward, 0.07, 16)
        for row in brought:
            parts = np.empty(len(PARTS))
            total = reward_parts(row, pay, *standing, 2, parts)
            tally = _Missed(busy_s=float(row["busy_s"]), valid_tokens=int(row["valid"]))
            tally.energy_joules = float(row["energy_joules"])
            tally.count = int(row["missed"])
            named = reward.parts(tally, 0.07, 16, standing, 2)
            assert tuple(named) == PARTS
            summands = list(named.values())
            assert parts.tolist() == summands and total == sum(summands)


def tiers_of(table: ActionTable) -> Tiers:
    """As kernels take them."""
    depths, widths, nodes = (np.array(t) for t in (table.depths, table.widths, table.nodes))
    return Tiers(depths, widths, nodes, np.array(table.running))


def test_the_share_of_the_slots_is_a_change_for_all_classes() -> None:
    table, rng = ActionTable(TABLE.names, running=(0.25, 0.5, 1.0)), np.random.default_rng(6)
    alone, both = table.actor(), np.array([True, True])
    alone.reset(Limits())
    held = np.zeros((2, 3), np.int64)
    plan = FleetPlan(held.copy(), held + 1, held + 2, np.zeros(2, np.int64), np.ones(2))
    switched, seen = np.zeros(2, np.int64), set()
    for _ in range(40):
        action = rng.integers(0, np.minimum(table.nvec, 2), 13)
        action[[1, 2, *range(4, 12)]] = 0
        actions = np.stack([action, action])
        assert take_actions(actions, both, tiers_of(table), plan, switched) == -1
        assert switched.tolist() == [alone.decide(action)] * 2
        assert plan.running.tolist() == [table.share(action)] * 2
        seen.add(int(switched[0]))
        for wrong in (-1, 3):
            actions[1, 12] = wrong
            assert take_actions(actions, both, tiers_of(table), plan, switched) == 1
    assert seen == {0, 1, 3}


class _Missed(Tally):
    """A tally that is told how many requests missed."""

    count = 0

    @property
    def missed(self) -> int:
        return self.count
