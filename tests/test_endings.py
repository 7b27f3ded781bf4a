"""How a request ends before its limit: cancelled, stopped by a string, failed, or out of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from engine.classes import ClassTable, SLOClass
from engine.errors import UserError
from engine.loop import Engine
from engine.orders import OrderName
from engine.paging import PagePool
from engine.request import Request, RequestRecord, Status
from engine.sampling.params import SamplingParams
from tests.random_plans import Choice, ListedPlans
from tests.scripted_drafter import HandClock
from tests.scripted_engine import ORDINARY, scripted_engine

CLASSES = ClassTable(
    (
        SLOClass("even", 2.0),
        SLOClass("first", 2.0, ttft_ratio=4.0, priority=1),
        SLOClass("whole", 2.0, completion_ratio=400.0),
    )
)
CHAIN = Choice(4, 1, 4, 99, 256, 16)


def letters(tokens: list[int]) -> str:
    """Token 0 is a, 1 is b and so on."""
    return "".join(chr(ord("a") + token) for token in tokens)


def by_id(records: Sequence[RequestRecord]) -> dict[int, RequestRecord]:
    """Records by request."""
    return {record.id: record for record in records}


# -- cancellation ----------------------------------------------------------------------------------


def test_cancelled_while_running_prefilling_queued_and_to_come(clock: HandClock) -> None:
    requests = [Request(i, 0, [1] * 8, 6, at) for i, at in enumerate([0.0, 0.0, 0.0, 0.0, 99.0])]
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 6] * 5, prefill_tokens=12)
    view = engine.next_decision()
    assert view is not None
    engine.run_iteration(view, ListedPlans([Choice(0, 1, 0, 0, 1, 16)]))  # a token of prompt a step
    pool = engine.backend.pool
    assert engine.slots.decoding[0].tolist() == [True, False]
    assert pool.free_pages == 0
    assert engine.cancel(0) and engine.cancel(1) and engine.cancel(2) and engine.cancel(4)
    assert pool.free_pages == pool.pages
    assert engine.slots.active[0].tolist() == [False, False]
    assert not engine.cancel(0)  # it has ended already
    records = by_id(engine.serve(ListedPlans([ORDINARY])))
    assert [records[i].status for i in (0, 1, 2, 4)] == [Status.CANCELLED] * 4
    assert records[3].status is Status.FINISHED
    assert requests[0].output == [5, 5]
    assert [records[i].output_tokens for i in (1, 2, 4)] == [0, 0, 0]
    assert math.isnan(records[1].first_token_s) and math.isnan(records[2].admitted_s)
    assert not any(r.has_objective for r in records.values() if r.status is Status.CANCELLED)
    assert not engine.cancel(3)


def test_cancelled_between_view_and_iteration(clock: HandClock) -> None:
    requests = [Request(i, 0, [1], 4, 0.0) for i in range(2)]
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 4] * 2)
    view = engine.next_decision()
    assert view is not None and view.active.tolist() == [True, True]
    engine.cancel(0)
    outcome = engine.run_iteration(view, ListedPlans([CHAIN]))
    assert outcome.ran.tolist() == [False, True]
    assert outcome.accepted_length.tolist() == [0, 3]
    # With nobody left nothing is run, and the engine goes on.
    engine = scripted_engine(clock, CLASSES, requests[:1], [[5] * 4])
    view = engine.next_decision()
    assert view is not None
    engine.cancel(0)
    outcome = engine.run_iteration(view, ListedPlans([CHAIN]))
    assert not outcome.ran.any() and outcome.verify_s == 0.0
    assert engine.next_decision() is None


def test_a_trace_cancels_on_the_engines_clock(clock: HandClock) -> None:
    requests = [
        Request(0, 0, [1], 8, 0.0, cancel_at_s=1.0),
        Request(1, 0, [1], 8, 0.0, cancel_at_s=0.75),  # waits for the slot all the time
        Request(2, 0, [1], 2, 0.0, cancel_at_s=50.0),
    ]
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 8] * 3, slots=1)
    records = by_id(engine.serve(ListedPlans([ORDINARY])))
    assert [records[i].status for i in range(3)] == ["cancelled", "cancelled", "finished"]
    assert records[0].finish_s == 1.0 and requests[0].output == [5, 5, 5]
    assert records[1].finish_s == 0.75 and records[1].queue_age_s == 0.75
    assert records[2].admitted_s == 1.0


def test_an_unknown_id_is_refused(clock: HandClock) -> None:
    engine = scripted_engine(clock, CLASSES, [Request(3, 0, [1], 2, 0.0)], [[]] * 3 + [[5] * 2])
    with pytest.raises(UserError, match="request 7 is unknown to the engine; give the id of one"):
        engine.cancel(7)


def test_ids_must_differ(clock: HandClock) -> None:
    with pytest.raises(UserError, match="requests share the id 0; give each its own"):
        scripted_engine(clock, CLASSES, [Request(0, 0, [1], 2, 0.0)] * 2, [[5] * 2])


# -- stop strings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stops", "kept"),
    [
        (("cd",), 4),  # a b c d | e f g: complete in the fourth token
        (("x", "fg", "ef"), 6),  # the one that is complete first
        (("a",), 1),  # the first token, which prefill emits
        (("x",), 7),
        ((), 7),
    ],
)
@pytest.mark.parametrize("plan", [ORDINARY, CHAIN], ids=["ordinary", "chain"])
def test_a_stop_string_ends_the_output_where_it_is_complete(
    clock: HandClock, plan: Choice, stops: tuple[str, ...], kept: int
) -> None:
    request = Request(0, 0, [1], 7, 0.0, stop_strings=stops)
    asked: list[list[int]] = []

    def detokenize(tokens: list[int]) -> str:
        asked.append(tokens)
        return letters(tokens)

    engine = scripted_engine(clock, CLASSES, [request], [list(range(7))], detokenize=detokenize)
    (record,) = engine.serve(ListedPlans([plan]))
    assert record.status is Status.FINISHED
    assert request.output == list(range(kept))
    assert record.output_tokens == kept
    assert engine.counters["emitted"] == kept - 1
    assert bool(asked) == bool(stops)  # nobody else pays for text
    assert engine.backend.pool.free_pages == engine.backend.pool.pages


def test_stop_strings_need_a_detokenizer(clock: HandClock) -> None:
    request = Request(0, 0, [1], 2, 0.0, stop_strings=("x",))
    with pytest.raises(UserError, match="request 0 has stop strings, but the engine cannot make"):
        scripted_engine(clock, CLASSES, [request], [[5] * 2])
    request.stop_strings = ("",)
    with pytest.raises(UserError, match="a stop string is empty"):
        scripted_engine(clock, CLASSES, [request], [[5] * 2], detokenize=letters)


# -- failure and log probabilities -----------------------------------------------------------------


def test_a_failing_request_fails_alone(clock: HandClock) -> None:
    requests = [Request(i, 0, [1], 4, 0.0) for i in range(2)]
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 4, [6] * 4], failing=frozenset({0}))
    records = by_id(engine.serve(ListedPlans([ORDINARY])))
    assert (records[0].status, requests[0].output) == (Status.FAILED, [5])
    assert (records[1].status, requests[1].output) == (Status.FINISHED, [6] * 4)
    assert records[0].has_objective and not records[0].attained
    assert engine.backend.pool.free_pages == engine.backend.pool.pages


def test_a_prompt_without_numbers_fails_alone(clock: HandClock) -> None:
    requests = [Request(i, 0, [1], 3, 0.0) for i in range(2)]
    engine = scripted_engine(clock, CLASSES, requests, [[-2], [6] * 3])  # what prefill then says
    records = by_id(engine.serve(ListedPlans([ORDINARY])))
    assert (records[0].status, requests[0].output) == (Status.FAILED, [])
    assert math.isnan(records[0].first_token_s)
    assert (records[1].status, requests[1].output) == (Status.FINISHED, [6] * 3)


def test_log_probabilities_come_with_the_tokens_of_who_asks(clock: HandClock) -> None:
    asking = SamplingParams(logprobs=True)
    requests = [
        Request(0, 0, [1], 7, 0.0, sampling=asking, stop_strings=("e",)),
        Request(1, 0, [1], 7, 0.0),
    ]
    answers = [list(range(7))] * 2
    engine = scripted_engine(clock, CLASSES, requests, answers, detokenize=letters)
    engine.serve(ListedPlans([CHAIN]))
    assert requests[0].output == [0, 1, 2, 3, 4]
    assert requests[0].logprobs == [-1.0, -0.5, -0.5, -0.5, -0.5]
    assert requests[1].logprobs == []


# -- memory ----------------------------------------------------------------------------------------


def pressed(
    clock: HandClock, requests: list[Request], tokens: int, order: OrderName = "fcfs"
) -> Engine:
    """Two slots and pages of one token; answers count up from a hundred times the id."""
    answers = [[100 * r.id + i for i in range(r.max_tokens)] for r in requests]
    pool = PagePool(tokens, 1, 2, 64)
    return scripted_engine(clock, CLASSES, requests, answers, pool=pool, order=order)


def test_trees_shrink_before_anybody_gives_way(clock: HandClock) -> None:
    requests = [Request(i, 0, [1] * 30, 6, 0.0) for i in range(2)]
    engine = pressed(clock, requests, 66)  # two roots and four nodes
    view = engine.next_decision()
    assert view is not None and view.kv_free_tokens == 66 - 60
    outcome = engine.run_iteration(view, ListedPlans([CHAIN._replace(depth=3)]))
    assert outcome.verified.sum() == 2 + 4
    assert outcome.shrunk == engine.counters["shrunk"] == 2
    assert engine.counters["preempted"] == 0
    assert pressed(clock, requests, 128).serve(ListedPlans([CHAIN])) and all(
        request.output == [100 * request.id + i for i in range(6)] for request in requests
    )


@pytest.mark.parametrize(("tokens", "preempted"), [(66, True), (128, False)])
def test_who_came_last_gives_way_and_comes_back(
    clock: HandClock, tokens: int, preempted: bool
) -> None:
    requests = [Request(i, i % 2, [1] * 30, 9, 0.0) for i in range(2)]
    requests.append(Request(2, 0, [1], 9, 0.0))
    engine = pressed(clock, requests, tokens)
    controller = ListedPlans([ORDINARY])
    while (view := engine.next_decision()) is not None:
        engine.run_iteration(view, controller)
        engine.backend.pool.check()
    records = by_id(engine.records())
    for request in requests:
        assert request.output == [100 * request.id + i for i in range(9)]
        assert records[request.id].status is Status.FINISHED
    assert [records[i].preempted > 0 for i in range(3)] == [False, preempted, False]
    assert engine.counters["preempted"] == records[1].preempted
    if preempted:
        # Its first times stay. The third, which memory would suffice for, does not overtake it.
        assert records[1].admitted_s == 0.0 and records[1].first_token_s == 1.0
        assert records[0].finish_s == records[2].admitted_s
        # The prompt again, and what had been emitted but the root.
        redone = [end for request, first, end in engine.backend.prefilled if request == 1]  # type: ignore[attr-defined]
        assert redone[0] == 30 and redone[1] > 30
        admitted = [request for _, request in engine.backend.admitted]  # type: ignore[attr-defined]
        assert admitted == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("order", "of_class", "gives_way"),
    [
        ("fcfs", (0, 1), 1),  # the newest
        ("fcfs", (1, 0), 1),
        ("priority", (0, 1), 0),  # the lowest priority
        ("priority", (1, 0), 1),
        ("priority", (0, 0), 1),  # of equals the newest
        ("edf", (0, 2), 0),  # the latest deadline, or whoever has none
        ("edf", (2, 0), 1),
        ("edf", (2, 2), 1),
    ],
)
def test_who_gives_way_is_last_in_the_selected_order(
    clock: HandClock, order: OrderName, of_class: tuple[int, int], gives_way: int
) -> None:
    requests = [Request(i, c, [1] * 30, 9, 0.0) for i, c in enumerate(of_class)]
    engine = pressed(clock, requests, 66, order)
    records = by_id(engine.serve(ListedPlans([ORDINARY])))
    assert [records[i].preempted > 0 for i in range(2)] == [i == gives_way for i in range(2)]
    assert all(r.output == [100 * r.id + i for i in range(9)] for r in requests)


def test_a_wait_after_a_preemption_counts_as_queue_age(clock: HandClock) -> None:
    requests = [Request(i, 0, [1] * 30, 9, 0.0) for i in range(2)]
    engine = pressed(clock, requests, 66)
    controller = ListedPlans([ORDINARY])
    parked_s = None
    while (view := engine.next_decision()) is not None:
        engine.run_iteration(view, controller)
        if engine.counters["preempted"] and parked_s is None:
            (parked_s,) = engine.ledger.parked_since_s.values()
            cut = by_id(engine.close_records())[1]
            assert cut.queue_age_s == engine.clock_s - parked_s > 0  # of a wait under way
    records = by_id(engine.records())
    assert parked_s is not None
    assert records[0].queue_age_s == 0.0
    assert records[1].admitted_s == records[1].arrival_s == 0.0
    assert records[1].queue_age_s == records[0].finish_s - parked_s > 0
    objective_s = records[1].queue_age_s
    assert records[1]._replace(queue_age_objective_s=objective_s).queue_age_met
    assert not records[1]._replace(queue_age_objective_s=objective_s - 0.125).queue_age_met


def test_a_prompt_waits_until_it_fits(clock: HandClock) -> None:
    requests = [Request(0, 0, [1] * 40, 3, 0.0), Request(1, 0, [1] * 40, 3, 0.0)]
    engine = pressed(clock, requests, 70)
    view = engine.next_decision()
    assert view is not None
    assert view.queued.tolist() == [1, 0, 0]  # a slot is free, memory is not
    assert [r.id for r in engine.serve(ListedPlans([ORDINARY]))] == [0, 1]
    assert engine.counters["preempted"] == 0
