"""Overload by hand: when the state begins and ends, and what each policy does in it.

An iteration takes 0.25 s and an ordinary one brings every request a token: 4 tokens/s each.
"""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from engine.classes import ClassTable, SLOClass
from engine.errors import UserError
from engine.overload import OverloadRule, PolicyName
from engine.request import Request, Status
from engine.settings import EngineSettings
from tests.overload_by_hand import (
    BRISK,
    CALM,
    FREE,
    HASTY,
    SLOW_READING,
    TOKENS,
    advance,
    counted,
    engine_of,
    rule,
)
from tests.random_plans import Choice, ListedPlans
from tests.scripted_drafter import HandClock
from tests.scripted_engine import ORDINARY, UNLOADED_S, scripted_engine

# -- the state -------------------------------------------------------------------------------------


def test_the_state_begins_and_ends_by_demand_over_offer(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_of(clock, [HASTY, CALM], [0.0, 0.0], rule("none"))
    with caplog.at_level(logging.INFO, logger="engine.overload"):
        advance(engine, 1)
        assert engine.overload.demand_tps(engine.clock_s).tolist() == [8.0, 2.0]
        assert engine.overload.offered_tps() == 8.0  # two requests at 4 tokens/s
        assert not engine.overload.active  # one iteration is too few to tell
        advance(engine, 1)
        assert engine.overload.active  # 10 > 1.1 * 8
        advance(engine, 3)
        assert engine.overload.entries == 1  # told once, not in every iteration
        advance(engine, 1, Choice(1, 1, 1, 99, 256, 16))  # a draft accepted: 16 tokens/s
        assert not engine.overload.active
        advance(engine, 1)
        assert engine.overload.entries == 2
    messages = [r.message for r in caplog.records if r.name == "engine.overload"]
    assert (
        messages
        == [
            "overloaded: 10.0 tokens/s are demanded and 8.0 offered; policy none",
        ]
        * 2
    )
    assert counted(engine, "overloaded") == [2, 0, 2, 0]


def test_between_the_ratios_the_state_stays_as_it_is(clock: HandClock) -> None:
    # Demand over offer is 10 / 8 = 1.25.
    patient = engine_of(clock, [HASTY, CALM], [0, 0], rule("none", enter_ratio=1.3))
    advance(patient, 4)
    assert not patient.overload.active
    lasting = engine_of(clock, [HASTY, CALM], [0, 0], rule("none", enter_ratio=1.2))
    advance(lasting, 4)
    assert lasting.overload.active
    object.__setattr__(lasting.overload.rule, "enter_ratio", 9.0)
    advance(lasting, 4)
    assert lasting.overload.active  # it would not begin now, but goes on


def test_a_completion_objective_demands_what_is_left(clock: HandClock) -> None:
    classes = ClassTable((SLOClass("whole", math.inf, completion_ratio=40.0),))  # 5 s
    engine = engine_of(clock, [0, 0], [0.0, 0.0], rule("none"), classes=classes)
    engine.next_decision()
    assert engine.overload.demand_tps(1.0).tolist() == [39 / 4, 39 / 4]
    assert engine.overload.demand_tps(5.0).tolist() == [0.0, 0.0]  # missed: nothing to be done
    # One slot gets 40 tokens/s at best: trees of depth 4 accepted whole, 0.125 s a step.
    assert engine.overload.demand_tps(4.0).tolist() == [39.0, 39.0]
    assert engine.overload.demand_tps(4.5).tolist() == [0.0, 0.0]  # 78 tokens/s: hopeless


@pytest.mark.parametrize("policy", ["degrade", "reject"])
def test_a_hopeless_request_overloads_nobody(clock: HandClock, policy: PolicyName) -> None:
    classes = ClassTable(
        (SLOClass("whole", 4.0, completion_ratio=5.0), SLOClass("calm", 4.0), SLOClass("free", 9.0))
    )
    engine = engine_of(clock, [0, 1, 1], [0.0, 0.0, 0.5], rule(policy), classes=classes)
    advance(engine, 2)
    # At 0.5 s the first has 0.125 s left for 37 tokens; beside it 4 tokens/s are demanded of 8.
    assert not engine.overload.active
    assert engine.overload.demand_tps(engine.clock_s).tolist() == [2.0, 2.0]
    assert counted(engine, "degraded") == counted(engine, "rejected") == [0, 0, 0]


def test_a_prompt_read_while_nobody_decodes_is_no_slow_decoding(clock: HandClock) -> None:
    judged_at_once = OverloadRule(decay=0.0, warm_up_iterations=1)
    engine = engine_of(clock, [HASTY, HASTY], [0.0, 0.5625], judged_at_once)
    engine.backend.prefill_s = 0.5  # type: ignore[attr-defined]
    engine.backend.verify_s = 0.0625  # type: ignore[attr-defined]
    # The first prompt delays nobody's tokens, the second those of the first request.
    for offered, overloaded in ((16.0, False), (2 / 0.5625, True)):
        view = engine.next_decision()
        assert view is not None
        outcome = engine.run_iteration(view, ListedPlans([ORDINARY]))
        assert outcome.iteration_s == 0.5625
        assert engine.overload.offered_tps() == pytest.approx(offered)
        engine.overload.update(engine.clock_s)
        assert engine.overload.active == overloaded


def test_the_clock_never_goes_back_to_an_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ticking(HandClock):
        """Every reading takes 1/64 s, so that admission takes time."""

        def __call__(self) -> float:
            self.advance(1 / 64)
            return self.now_s

    ticking = Ticking()
    monkeypatch.setattr("engine.loop.perf_counter", ticking)
    engine = engine_of(ticking, [HASTY], [0.01], rule("none"))  # comes during the first look
    engine.next_decision()
    assert engine.slots.admitted_s[0, 0] == 1 / 64


# -- reject ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "rejected"), [("reject", [1, 3]), ("none", []), ("degrade", [])]
)
def test_reject_turns_away_whom_it_cannot_serve(
    clock: HandClock, policy: PolicyName, rejected: list[int]
) -> None:
    # Request 0 overloads the engine for its own class and below; 4 comes when it is over.
    engine = engine_of(
        clock,
        [HASTY, BRISK, FREE, HASTY, CALM],
        [0.0, 1.0, 1.0, 1.0, 50.0],
        rule(policy),
        slots=1,
        tokens=10,
    )
    records = {r.id: r for r in engine.serve(ListedPlans([ORDINARY]))}
    turned_away = [i for i, r in records.items() if r.status is Status.REJECTED]
    assert sorted(turned_away) == rejected
    assert sum(counted(engine, "rejected")) == len(rejected)
    for i in turned_away:
        record = records[i]
        assert record.finish_s == 1.0 and math.isnan(record.admitted_s)
        assert record.has_objective and not record.attained  # a miss like any other
    assert records[2].status is records[4].status is Status.FINISHED


def test_a_higher_priority_is_not_turned_away_for_a_lower_one(clock: HandClock) -> None:
    classes = ClassTable((SLOClass("first", 4.0, priority=1), SLOClass("last", 1.0)))
    engine = engine_of(
        clock, [1, 0, 1], [0.0, 1.0, 1.0], rule("reject"), slots=1, tokens=10, classes=classes
    )
    records = {r.id: r.status for r in engine.serve(ListedPlans([ORDINARY]))}
    assert records == {0: Status.FINISHED, 1: Status.FINISHED, 2: Status.REJECTED}
    assert counted(engine, "rejected") == [0, 1]


def test_reject_counts_all_whom_it_has_let_in(clock: HandClock) -> None:
    # Each of the first class demands 2 of the 8 tokens/s; what runs is of the last class.
    classes = ClassTable((SLOClass("first", 4.0, priority=1), SLOClass("last", 1.0)))
    arrivals = [0.0] * 2 + [1.0] * 100 + [2.0] * 3
    requests = [Request(i, int(i < 2), [1] * 12, TOKENS, at) for i, at in enumerate(arrivals)]
    answers = [[5] * TOKENS] * len(requests)
    engine = scripted_engine(clock, classes, requests, answers, slots=3, overload=rule("reject"))
    engine.backend.prefill_s = 0.0  # type: ignore[attr-defined]
    advance(engine, 3)
    advance(engine, 1, SLOW_READING)
    assert engine.clock_s == 1.0 and engine.overload.offered_tps() == 8.0
    assert counted(engine, "rejected") == [96, 0]  # of those who come together, four get in
    advance(engine, 4, SLOW_READING)
    # One of the four still reads its prompt, three wait, and they demand all there is.
    assert engine.clock_s == 2.0 and engine.overload.offered_tps() == 8.0
    assert engine.slots.active[0].all() and not engine.slots.decoding[0, 2]
    assert len(engine.scheduler.waiting) == 3
    assert counted(engine, "rejected") == [99, 0]


def test_reject_lets_no_lower_priority_in_before_a_higher_one(clock: HandClock) -> None:
    # Of 8 tokens/s nothing that runs counts at priority 1 or above, and each newcomer demands 8.
    classes = ClassTable(
        (SLOClass("first", 1.0, priority=2), SLOClass("next", 1.0, priority=1), SLOClass("last", 1))
    )
    engine = engine_of(
        clock, [2, 2, 1, 0], [0.0, 0.0, 1.0, 1.0], rule("reject"), tokens=10, classes=classes
    )
    records = {r.id: r.status for r in engine.serve(ListedPlans([ORDINARY]))}
    assert [i for i, status in records.items() if status is Status.REJECTED] == [2]


# -- degrade ---------------------------------------------------------------------------------------


def test_degrade_moves_the_least_of_them_to_looser_classes(clock: HandClock) -> None:
    engine = engine_of(clock, [HASTY, BRISK], [0.0, 0.0], rule("degrade"))
    advance(engine, 2)
    # 13 tokens/s were demanded of 8. The lower priority gives way, one class after the other (5, 2,
    # 0), before the higher one is touched.
    assert engine.overload.demand_tps(engine.clock_s).tolist() == [8.0, 0.0]
    assert counted(engine, "degraded") == [0, 2, 0, 0]
    view = engine.next_decision()
    assert view is not None
    assert view.tpot_objective_s.tolist() == [UNLOADED_S, math.inf]
    assert view.slo_class.tolist() == [HASTY, BRISK]
    records = {r.id: r for r in engine.serve(ListedPlans([ORDINARY]))}
    assert [records[i].slo_class for i in (0, 1)] == [HASTY, BRISK]
    assert [records[i].degraded_to for i in (0, 1)] == [-1, FREE]
    # What was promised is what is judged, else degrading would improve attainment.
    assert [records[i].tpot_objective_s for i in (0, 1)] == [UNLOADED_S, 1.6 * UNLOADED_S]
    assert not records[1].attained
    assert records[1].valid_tokens == 1  # token i at 0.25 i, due at 0.2 i


def test_of_equal_priorities_the_loosest_gives_way_first(clock: HandClock) -> None:
    engine = engine_of(clock, [BRISK, CALM], [0.0, 0.0], rule("degrade"))
    engine.backend.verify_s = 0.34375  # type: ignore[attr-defined]  # 5.8 tokens/s
    advance(engine, 2)
    assert engine.overload.demand_tps(engine.clock_s).tolist() == [5.0, 0.0]
    assert counted(engine, "degraded") == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("classes", "verify_s", "running", "demand"),
    [
        # The looser class must be through in 5 s, which would take 37 / 4.5 tokens/s.
        ((SLOClass("a", 1.0), SLOClass("b", 2.0, completion_ratio=40.0)), 0.25, 2, [4.0, 4.0]),
        # What the second class has forgiven the third does not bring back.
        (
            (
                SLOClass("a", 1.0, completion_ratio=40.0),
                SLOClass("b", 2.0),
                SLOClass("c", 4.0, completion_ratio=20.0),
            ),
            0.5,
            1,
            [2.0],
        ),
    ],
)
def test_a_move_never_adds_demand(
    clock: HandClock,
    classes: tuple[SLOClass, ...],
    verify_s: float,
    running: int,
    demand: list[float],
) -> None:
    engine = engine_of(
        clock,
        [0] * running,
        [0.0] * running,
        rule("degrade"),
        slots=running,
        classes=ClassTable(classes),
    )
    engine.backend.verify_s = verify_s  # type: ignore[attr-defined]
    advance(engine, 2)
    assert engine.overload.demand_tps(engine.clock_s).tolist() == demand
    assert sum(counted(engine, "degraded")) == 2


def test_without_degrade_objectives_stay(clock: HandClock) -> None:
    engine = engine_of(clock, [HASTY, BRISK], [0.0, 0.0], rule("none"))
    advance(engine, 4)
    assert engine.overload.active
    assert engine.slots.tpot_objective_s[0].tolist() == [UNLOADED_S, 1.6 * UNLOADED_S]
    assert counted(engine, "degraded") == [0, 0, 0, 0]
    assert all(r.degraded_to == -1 for r in engine.close_records())


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"policy": "pray"}, "policy is 'pray'; expected one of none, reject, degrade"),
        ({"enter_ratio": 0.9}, "leave_ratio is 1.0 and enter_ratio 0.9"),
        ({"decay": 1.0}, "decay is 1.0"),
        ({"progress_age_ratio": 0.0}, "must be above 0"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        OverloadRule(**fields)  # type: ignore[arg-type]


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(UserError, match="order is 'lifo'; expected one of fcfs, priority, edf"):
        EngineSettings(order="lifo")  # type: ignore[arg-type]


def test_nothing_is_overloaded_while_nothing_decodes(clock: HandClock) -> None:
    engine = engine_of(clock, [HASTY], [0.0], rule("reject"))
    advance(engine, 3)
    assert engine.overload.active
    engine.cancel(0)
    engine.overload.update(engine.clock_s)
    assert not engine.overload.active
    assert np.all(engine.overload.demand_tps(engine.clock_s) == 0)
