"""The overload policy that bounds starvation: who makes room, and who yields its tree."""

from __future__ import annotations

import pytest

from engine.overload import PolicyName
from engine.request import Request, Status
from tests.overload_by_hand import (
    CLASSES,
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
from tests.scripted_engine import ORDINARY, scripted_engine


@pytest.mark.parametrize("policy", ["minimum-progress", "none"])
def test_minimum_progress_bounds_the_wait_for_a_slot(clock: HandClock, policy: PolicyName) -> None:
    # One slot, three requests, ten seconds each; the age is 16 * 0.125 = 2 s.
    engine = engine_of(
        clock, [HASTY] * 3, [0.0, 0.5, 0.5], rule(policy, progress_age_ratio=16.0), slots=1
    )
    records = {r.id: r for r in engine.serve(ListedPlans([ORDINARY]))}
    assert all(r.status is Status.FINISHED and r.output_tokens == TOKENS for r in records.values())
    first_waits = [records[i].admitted_s - records[i].arrival_s for i in range(3)]
    if policy == "none":
        assert first_waits == [0.0, 9.25, 19.0]
        assert engine.counters["preempted"] == 0
        return
    # k requests ahead on one slot: at most (k + 1) ages and the iterations under way.
    assert first_waits[1] <= 2.0 + 0.5 and first_waits[2] <= 2 * (2.0 + 0.5)
    # Who gave its slot up waits behind both of the others, which its record tells.
    assert all(2.0 < records[i].queue_age_s <= 2 * (2.0 + 0.5) for i in range(3))
    assert sum(counted(engine, "sliced")) == engine.counters["preempted"] > 3
    assert sum(r.preempted for r in records.values()) == engine.counters["preempted"]


def test_minimum_progress_takes_no_slot_from_a_request_that_reads(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Request 1 reads its prompt since 0.25 s. When 0 leaves, 2 gets its slot, and 3 has waited for
    # the age of 1 s while 1 holds a slot as long, longer than anybody.
    requests = [
        Request(0, HASTY, [1], TOKENS, 0.0, cancel_at_s=1.25),
        Request(1, HASTY, [1] * 12, TOKENS, 0.25),
        Request(2, HASTY, [1], TOKENS, 0.25),
        Request(3, HASTY, [1], TOKENS, 0.25),
    ]
    slicing = rule("minimum-progress", progress_age_ratio=8.0)
    engine = scripted_engine(clock, CLASSES, requests, [[5] * TOKENS] * 4, overload=slicing)
    engine.backend.prefill_s = 0.0  # type: ignore[attr-defined]
    decoded: list[bool] = []
    take_slot = engine.take_slot

    def noted(slot: int, displaced: bool) -> None:
        decoded.append(bool(engine.slots.decoding[0, slot]))
        take_slot(slot, displaced)

    monkeypatch.setattr(engine, "take_slot", noted)
    plans = [SLOW_READING] * 5 + [ORDINARY] * 500
    records = {r.id: r for r in engine.serve(ListedPlans(plans))}
    assert decoded and all(decoded)
    assert all(records[i].status is Status.FINISHED for i in (1, 2, 3))
    assert records[1].admitted_s == 0.25 and records[1].first_token_s == 1.25
    assert records[1].preempted < records[1].output_tokens  # a token in every turn


@pytest.mark.parametrize(("policy", "spared"), [("minimum-progress", True), ("none", False)])
def test_who_is_ahead_of_the_minimum_rate_yields_its_tree(
    clock: HandClock, policy: PolicyName, spared: bool
) -> None:
    # The rate is one token in 0.25 s. Slot 0 speculates at first and is ahead of it; slot 1,
    # which decodes since later, is held back by slow steps and falls behind.
    engine = engine_of(clock, [HASTY, HASTY], [0.0, 0.0], rule(policy, progress_tpot_ratio=2.0))
    advance(engine, 2, Choice([1, 0], 1, [1, 0], 99, 256, 16))
    assert engine.overload.active
    engine.backend.verify_s = 0.375  # type: ignore[attr-defined]
    advance(engine, 2, Choice([1, 0], 1, [1, 0], 99, 256, 16))
    view = engine.next_decision()
    assert view is not None
    outcome = engine.run_iteration(view, ListedPlans([Choice(1, 1, 1, 99, 256, 16)]))
    assert outcome.drafted.tolist() == ([0, 1] if spared else [1, 1])
    assert (sum(counted(engine, "yielded")) > 0) == spared
