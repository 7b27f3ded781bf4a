"""Snapshots of an engine on replay: what follows a restore is what followed before, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import snapshot as of_engine
from engine.errors import UserError
from engine.loop import Engine
from engine.orders import OrderName
from engine.overload import OverloadRule
from engine.protocol import Outcome
from engine.replay.backend import ReplayBackend
from engine.request import RequestRecord
from engine.snapshot_origin import Snapshot
from engine.snapshot_values import Carrier, LeftOut
from engine.viewing import build_view
from engine.workload.disturbances import Disturbance, Disturbances
from tests.snapshot_walk import assert_same_data, constants
from tests.test_fleet import PROMISES, ByClass, trace
from tests.tiny_recording import asked, live_server, replay_server

KINDS = {"memory": 0.6, "acceptance": 0.5, "draft_time": 3.0, "power_cap": 0.5}
BUDGETS = (5, 20, 1000)
POLICIES = ("none", "reject", "degrade", "minimum-progress")
ORDERS: tuple[OrderName, ...] = ("fcfs", "priority", "edf")


@dataclass(frozen=True)
class Case:
    """An episode that uses much of what an engine can do."""

    seed: int
    order: OrderName = "edf"
    policy: Any = "minimum-progress"
    pool_tokens: int | None = 400
    wrong: tuple[str, ...] = ()

    def engine(self) -> Engine:
        """At its beginning."""
        server = replay_server(page_size=16, kv_pool_tokens=self.pool_tokens)
        rule = OverloadRule(self.policy, warm_up_iterations=2, progress_age_ratio=3.0)
        requests = trace(self.seed)
        for request in requests[::5]:
            request.cancel_at_s = request.arrival_s + 0.3
        wrong = Disturbances(Disturbance(kind, 0.2, 1.5, KINDS[kind]) for kind in self.wrong)
        chosen = replace(server.settings, order=self.order, overload=rule)
        return server.engine(requests, PROMISES, chosen, wrong)


def play(engine: Engine, seed: int, iterations: int, is_due: bool = False) -> list[Outcome]:
    """So many iterations under random plans, up to the decision that comes then."""
    controller = ByClass(seed, BUDGETS)
    view = build_view(engine) if is_due else engine.next_decision()
    brought: list[Outcome] = []
    while view is not None and len(brought) < iterations:
        brought.append(engine.run_iteration(view, controller))
        view = engine.next_decision()
    return brought


def rest(engine: Engine, iterations: int = 12) -> tuple[list[Outcome], list[RequestRecord], Any]:
    """What comes next, and what is then in the books."""
    brought = play(engine, 77, iterations, is_due=True)
    return brought, engine.close_records(), dict(engine.counters)


cases = st.builds(
    Case,
    st.integers(0, 50),
    st.sampled_from(ORDERS),
    st.sampled_from(POLICIES),
    st.sampled_from((400, 500, None)),
    st.lists(st.sampled_from(sorted(KINDS)), unique=True, max_size=2).map(tuple),
)


@settings(max_examples=12)
@given(case=cases, seed=st.integers(0, 99), taken_at=st.integers(0, 45))
def test_what_follows_is_the_same_in_the_engine_and_in_a_fresh_one(
    case: Case, seed: int, taken_at: int
) -> None:
    engine = case.engine()
    play(engine, seed, taken_at)
    taken = engine.snapshot()
    expected = rest(engine)
    engine.restore(taken)
    assert_same_data(engine.snapshot().state, taken.state)
    np.testing.assert_equal(rest(engine), expected)
    fresh = case.engine()
    fresh.restore(taken)
    np.testing.assert_equal(rest(fresh), expected)


def test_the_episode_has_what_can_be_forgotten() -> None:
    engine = Case(3).engine()
    play(engine, 1, 30)
    ledger, scheduler = engine.ledger, engine.scheduler
    assert ledger.running and ledger.parked and ledger.records and scheduler.waiting
    assert any(entry.started for entry in scheduler.waiting)
    assert engine.overload.entries and engine.counters["preempted"] and engine.counters["shrunk"]
    assert {record.status for record in ledger.records} >= {"finished", "cancelled"}
    assert engine.backend.pool.used_pages


def test_a_snapshot_before_the_next_decision_is_good_too() -> None:
    engine = Case(5).engine()
    play(engine, 1, 12)
    view = build_view(engine)
    engine.run_iteration(view, ByClass(2, BUDGETS))
    taken = engine.snapshot()
    expected = play(engine, 4, 20)
    engine.restore(taken)
    np.testing.assert_equal(play(engine, 4, 20), expected)


def test_stop_strings_are_looked_for_where_they_were() -> None:
    def engine() -> Engine:
        server = replay_server(page_size=16, kv_pool_tokens=400)
        requests = asked(8, gap_s=0.02)
        for request in requests:
            request.stop_strings = (chr(96 + request.id) * 2, "zz", "wh")
        alone = server.engine([])
        backend: Any = alone.backend
        return Engine(
            backend,
            requests,
            PROMISES,
            server.settings,
            server.unloaded_tpot_s,
            detokenize=lambda tokens: "".join(chr(97 + token % 26) for token in tokens),
            profile=server.profile,
            power=alone.power,
            stopwatch=backend.clock,
        )

    first = engine()
    play(first, 1, 25)
    searches = first.stops._searches
    before = {i: (s._tail, list(s._window), s._settled) for i, s in searches.items()}
    assert before
    taken = first.snapshot()
    expected = rest(first, 200)
    assert any(record.output_tokens < 40 for record in expected[1])
    fresh = engine()
    fresh.restore(taken)
    searches = fresh.stops._searches
    assert {i: (s._tail, list(s._window), s._settled) for i, s in searches.items()} == before
    np.testing.assert_equal(rest(fresh, 200), expected)


# -- nothing is forgotten ----------------------------------------------------------------------


def changed(carrier: Carrier) -> set[str]:
    """Which constants change within an episode."""
    engine = Case(3, wrong=("memory", "acceptance", "power_cap")).engine()
    play(engine, 1, 5)
    before = constants(carrier, engine)
    play(engine, 2, 40, is_due=True)
    after = constants(carrier, engine)
    assert before.keys() == after.keys() and len(before) > 20
    return {name for name in before if before[name] != after[name]}


def test_what_is_called_constant_is() -> None:
    assert changed(of_engine.CARRIER) == set()


def test_what_is_left_out_is_there_by_that_name() -> None:
    engine = Case(3).engine()
    engine.snapshot()
    found = [engine, engine.scheduler, engine.ledger, engine.overload]
    found += [engine.backend, engine.backend.pool, engine.stopwatch, engine.power]
    assert {type(of) for of in found} == set(of_engine.LEFT_OUT)
    for of in found:
        for name in (*of_engine.LEFT_OUT[type(of)].constant, *of_engine.LEFT_OUT[type(of)].rebuilt):
            assert name in vars(of), f"{type(of).__name__}.{name}"


@pytest.mark.parametrize("name", ["clock_s", "drafted_to", "counters", "slots"])
def test_a_forgotten_field_is_noticed(name: str) -> None:
    left_out = dict(of_engine.LEFT_OUT)
    own = left_out[Engine]
    left_out[Engine] = LeftOut((*own.constant, name), own.rebuilt)
    assert changed(replace(of_engine.CARRIER, left_out=left_out)) == {f"Engine.{name}"}


def test_a_field_that_comes_later_is_carried_or_refused() -> None:
    engine = Case(3).engine()
    engine.backend.pool.new_counts = {3: np.arange(4)}  # type: ignore[attr-defined]
    taken = engine.snapshot()
    engine.backend.pool.new_counts = {}  # type: ignore[attr-defined]
    engine.restore(taken)
    assert engine.backend.pool.new_counts[3].tolist() == [0, 1, 2, 3]  # type: ignore[attr-defined]
    engine.ledger.new_thing = object()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"engine\.ledger\.new_thing is a object"):
        engine.snapshot()


def test_nothing_is_shared_with_a_snapshot() -> None:
    engine = Case(3).engine()
    play(engine, 1, 20)
    taken = engine.snapshot()
    slots = engine.slots
    play(engine, 2, 10, is_due=True)
    held = [array.copy() for array in slots]
    engine.restore(taken)  # once more from the same snapshot, into arrays of its own
    first = rest(engine)
    np.testing.assert_equal(list(slots), held)
    engine.restore(taken)
    np.testing.assert_equal(rest(engine), first)


# -- what is refused ---------------------------------------------------------------------------


def refusal(engine: Engine, taken: Snapshot) -> str:
    """What the engine says to the snapshot."""
    with pytest.raises(UserError) as caught:
        engine.restore(taken)
    return str(caught.value)


def test_a_snapshot_is_refused_elsewhere() -> None:
    taken = Case(3).engine().snapshot()
    assert "another list of requests" in refusal(Case(4).engine(), taken)
    assert "another order: 'edf', where this Engine has" in refusal(Case(3, "fcfs").engine(), taken)
    assert "another KV pool: 25 pages" in refusal(Case(3, pool_tokens=480).engine(), taken)
    server = replay_server(page_size=16, kv_pool_tokens=400)
    memory = replace(server.profile.memory, resident_bytes=1)
    server.profile = replace(server.profile, memory=memory)
    requests, chosen = Case(3).engine().requests, Case(3).engine().settings
    elsewhere = server.engine(requests, PROMISES, chosen)
    assert "another hardware profile" in refusal(elsewhere, taken)
    server = replay_server(page_size=16, kv_pool_tokens=400)
    server.book = server.book._replace(probability=server.book.probability * 0.5)
    elsewhere = server.engine(requests, PROMISES, chosen)
    assert "another recording" in refusal(elsewhere, taken)
    assert "of a Fleet" in refusal(Case(3).engine(), taken._replace(kind="Fleet"))


def test_fields_of_another_version_are_refused() -> None:
    engine = Case(3).engine()
    taken = engine.snapshot()
    fields = dict(taken.state["of"])
    fields["older_s"] = fields.pop("clock_s")
    assert "differs from this version's in clock_s, older_s" in refusal(
        engine, taken._replace(state={**taken.state, "of": fields})
    )


def test_a_live_engine_cannot_be_taken_back() -> None:
    live = live_server().engine([])
    with pytest.raises(UserError, match="engines on replay"):
        live.snapshot()
    with pytest.raises(UserError, match="engines on replay"):
        live.restore(Case(3).engine().snapshot())
    measured = Case(3).engine()
    assert isinstance(measured.backend, ReplayBackend)
    measured.stopwatch = None
    with pytest.raises(UserError, match="time is measured"):
        measured.snapshot()
