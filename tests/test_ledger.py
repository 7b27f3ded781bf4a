"""The ledger by hand: the target is scripted, the clock moves only when told, figures are exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from engine.classes import ClassTable, SLOClass
from engine.loop import Engine
from engine.protocol import Controller, Plan, View
from engine.request import Request, RequestRecord, Status
from engine.telemetry import Energy, PowerMeter
from tests.random_plans import Choice, ListedPlans, as_plan
from tests.scripted_drafter import HandClock
from tests.scripted_engine import ORDINARY, scripted_engine

CLASSES = ClassTable(
    (
        SLOClass("tight", tpot_ratio=1.0, ttft_ratio=4.0),  # 0.125 s a token, 0.5 s to the first
        SLOClass("even", tpot_ratio=2.0),  # 0.25 s a token
        SLOClass("free", tpot_ratio=float("inf")),
    )
)
Serve = Callable[..., Engine]


def chain(depth: int) -> Choice:
    """A chain of `depth` drafts, all of which the target accepts."""
    return Choice(depth, 1, depth, 99, 256, 16)


@pytest.fixture
def engine_of(clock: HandClock) -> Serve:
    """Builds an engine over requests and their answers."""

    return partial(scripted_engine, clock, CLASSES)


def only(records: Sequence[RequestRecord]) -> RequestRecord:
    """The one record."""
    (record,) = records
    return record


def test_ordinary_decoding(engine_of: Serve) -> None:
    request = Request(0, 0, [1, 2, 3], 5, 0.0)
    record = only(engine_of([request], [[4, 5, 6, 7, 8]]).serve(ListedPlans([ORDINARY])))
    assert request.output == [4, 5, 6, 7, 8]
    assert (record.admitted_s, record.first_token_s, record.finish_s) == (0.0, 0.5, 1.5)
    assert record.ttft_s == 0.5
    assert record.tpot_s == 0.25  # four tokens in a second
    assert record.tpot_objective_s == 0.125
    assert record.ttft_objective_s == 0.5
    assert (record.tpot_met, record.ttft_met, record.attained) == (False, True, False)
    assert record.valid_tokens == 1  # the first; token i came at 0.25 i, due at 0.125 i
    assert (record.iterations, record.verified_nodes) == (4, 4)
    assert (record.prompt_tokens, record.output_tokens) == (3, 5)


def test_speculation_makes_tokens_valid(engine_of: Serve) -> None:
    request = Request(0, 0, [1, 2, 3], 5, 0.0)
    engine = engine_of([request], [[4, 5, 6, 7, 8]])
    record = only(engine.serve(ListedPlans([chain(1)])))
    assert request.output == [4, 5, 6, 7, 8]
    # Two tokens each 0.25 s: 1 and 2 at 0.25 (due at 0.125 and 0.25), 3 and 4 at 0.5 (0.375, 0.5).
    assert record.valid_tokens == 1 + 1 + 1
    assert record.tpot_s == 0.125
    assert record.tpot_met and record.attained  # an objective that is just kept counts as met
    assert (record.iterations, record.verified_nodes) == (2, 4)
    assert engine.counters["emitted"] == 4
    assert engine.counters["drafted"] == 2
    assert engine.counters["wasted"] == 0


def test_all_tokens_of_a_class_without_objective_are_valid(engine_of: Serve) -> None:
    record = only(
        engine_of([Request(0, 2, [1], 4, 0.0)], [[5, 5, 5, 5]]).serve(ListedPlans([ORDINARY]))
    )
    assert record.valid_tokens == 4
    assert record.attained


@pytest.mark.parametrize(("limit", "answer", "stop"), [(1, [9, 9], 7), (8, [7, 9], 7)])
def test_one_token_answers_have_no_tpot(
    engine_of: Serve, limit: int, answer: list[int], stop: int
) -> None:
    request = Request(0, 0, [1, 2], limit, 0.0, frozenset({stop}))
    engine = engine_of([request], [answer])
    assert engine.next_decision() is None  # nothing is left to decide
    record = only(engine.close_records())
    assert record.status is Status.FINISHED
    assert request.output == answer[:1]
    assert math.isnan(record.tpot_s)
    assert record.tpot_met and record.attained
    assert (record.valid_tokens, record.iterations, record.verified_nodes) == (1, 0, 0)
    assert record.finish_s == record.first_token_s == 0.5
    assert 0 in engine.backend.released  # type: ignore[attr-defined]


def test_a_stop_token_on_the_path_ends_the_output(engine_of: Serve) -> None:
    request = Request(0, 1, [1], 9, 0.0, frozenset({7}))
    engine = engine_of([request], [[4, 5, 7, 6, 6, 6, 6, 6, 6]])
    view = engine.next_decision()
    assert view is not None
    outcome = engine.run_iteration(view, ListedPlans([chain(4)]))
    assert request.output == [4, 5, 7]
    assert outcome.accepted_length[0] == 2  # of five
    assert outcome.accepted[0].tolist() == [True, True, False, False]
    assert outcome.wasted[0] == 2
    assert outcome.finished[0]
    assert outcome.accepted_within[0, :, -1].tolist() == [1, 2, 2, 2, 2]
    record = only(engine.records())
    assert (record.output_tokens, record.tpot_s) == (3, 0.125)


def test_the_token_limit_cuts_the_tree(engine_of: Serve) -> None:
    request = Request(0, 1, [1], 3, 0.0)
    engine = engine_of([request], [[4, 5, 6, 7, 8]])
    view = engine.next_decision()
    assert view is not None and view.remaining_tokens[0] == 2
    outcome = engine.run_iteration(view, ListedPlans([chain(4)]))
    assert request.output == [4, 5, 6]
    assert outcome.drafted[0] == 1  # a second draft could never be emitted beside the bonus token
    assert outcome.clipped == 0  # and no controller is blamed for it
    assert outcome.finished[0]


def test_what_is_cut_at_the_horizon_is_unfinished(engine_of: Serve) -> None:
    requests = [Request(i, 1, [1], 8, at) for i, at in enumerate([0.0, 0.0, 0.9, 50.0])]
    engine = engine_of(requests, [[5] * 8] * 4, slots=1, horizon_s=1.0)
    records = {r.id: r for r in engine.serve(ListedPlans([ORDINARY]))}
    assert set(records) == {0, 1, 2}  # the last one never came
    running, waiting, late = records[0], records[1], records[2]
    assert all(r.status is Status.UNFINISHED and not r.attained for r in records.values())
    assert requests[0].output == [5, 5, 5]  # the first, and two iterations
    assert (running.output_tokens, running.tpot_s, running.finish_s) == (3, 0.25, 1.0)
    assert (waiting.output_tokens, waiting.valid_tokens, waiting.finish_s) == (0, 0, 1.0)
    for record in (waiting, late):
        assert math.isnan(record.admitted_s) and math.isnan(record.first_token_s)
        assert math.isnan(record.tpot_s) and not record.ttft_met
    assert waiting.tpot_objective_s == 0.25


def test_the_clock_does_not_jump_over_the_horizon(engine_of: Serve) -> None:
    engine = engine_of([Request(0, 0, [1], 4, 50.0)], [[5] * 4], horizon_s=2.0)
    assert engine.serve(ListedPlans([ORDINARY])) == []
    assert engine.clock_s == 2.0


def test_a_request_ages_in_the_queue(engine_of: Serve) -> None:
    requests = [Request(0, 1, [1], 3, 0.0), Request(1, 2, [1], 3, 0.25)]
    engine = engine_of(requests, [[5] * 3, [6] * 3], slots=1)
    controller = ListedPlans([ORDINARY])
    view = engine.next_decision()
    assert view is not None
    assert (view.clock_s, view.queue_age_s[0]) == (0.5, 0.0)
    assert view.queued.tolist() == [0, 0, 0]  # it came while the first prompt was read
    engine.run_iteration(view, controller)
    view = engine.next_decision()
    assert view is not None
    assert view.queued.tolist() == [0, 0, 1]
    assert view.oldest_queued_s.tolist() == [0.0, 0.0, 0.5]
    engine.run_iteration(view, controller)  # the first is through at 1.0
    view = engine.next_decision()
    assert view is not None and view.clock_s == 1.5
    assert view.queue_age_s[0] == 0.75
    records = {r.id: r for r in engine.serve(controller)}
    assert records[1].admitted_s == 1.0
    assert records[1].ttft_s == 1.25


def test_the_clock_jumps_over_idle_time(engine_of: Serve) -> None:
    requests = [
        Request(0, 1, [1], 2, 4.0),
        Request(1, 1, [1], 1, 100.0),
        Request(2, 1, [1], 2, 200.0),
    ]
    engine = engine_of(requests, [[5] * 2] * 3)
    controller = ListedPlans([ORDINARY])
    view = engine.next_decision()
    assert view is not None and view.clock_s == 4.5
    assert engine.run_iteration(view, controller).start_s == 4.0
    view = engine.next_decision()  # past the second, which is answered by its first token alone
    assert view is not None and view.clock_s == 200.5
    outcome = engine.run_iteration(view, controller)
    assert (outcome.start_s, outcome.prefill_s, outcome.iteration_s) == (200.0, 0.5, 0.75)
    assert [r.ttft_s for r in engine.close_records()] == [0.5, 0.5, 0.5]


class Slow(Controller):
    """Takes time in every one of its methods."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock

    def plan(self, view: View) -> Plan:
        self.clock.advance(0.125)
        return as_plan(Choice(3, 1, 3, 99, 256, 16), view.limits.slots)

    def extend(self, *_: object) -> None:
        self.clock.advance(0.0625)

    def select(self, *_: object) -> None:
        self.clock.advance(0.03125)

    def observe(self, *_: object) -> None:
        self.clock.advance(0.0078125)


def test_only_the_engine_and_its_controller_are_charged(engine_of: Serve, clock: HandClock) -> None:
    engine = engine_of([Request(0, 1, [1], 9, 0.0)], [[5] * 9], draft_s=0.015625)
    controller = Slow(clock)
    for iteration in range(2):
        clock.advance(500.0)  # a gradient step, say
        view = engine.next_decision()
        assert view is not None
        clock.advance(3600.0)
        outcome = engine.run_iteration(view, controller)
        assert outcome.prefill_s == (0.5 if iteration == 0 else 0.0)
        assert outcome.draft_s == 3 * 0.015625
        # What it thinks after an iteration is charged with the next decision.
        assert outcome.controller_s == 0.125 + 2 * 0.0625 + iteration * 0.0078125
        assert outcome.select_s == 0.03125
        assert outcome.verify_s == 0.25
        assert outcome.other_s == 0.0
        assert outcome.start_s + outcome.iteration_s + 0.0078125 == engine.clock_s
        assert engine.iteration_s == outcome.iteration_s
    record = only(engine.records())
    decoding_s = 2 * (0.25 + 0.03125 + 0.25 + 3 * 0.015625) + 0.0078125
    assert record.finish_s - record.first_token_s == decoding_s


class Passes(PowerMeter):
    """Notes for how many tokens a pass an iteration's energy is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[float] = []

    def end(self, busy_s: float, tokens_per_pass: float) -> Energy:
        self.tokens.append(tokens_per_pass)
        return super().end(busy_s, tokens_per_pass)


def test_energy_is_of_all_prompt_tokens_of_an_iteration(engine_of: Serve) -> None:
    # Nobody decodes until 10 tokens are read by rounds of 4; then rounds stand between decodings.
    requests = [Request(0, 1, [1] * 10, 5, 0.0), Request(1, 1, [1] * 6, 5, 0.0)]
    engine = engine_of(requests, [[5] * 5] * 2, prefill_tokens=4)
    engine.power = power = Passes()
    engine.serve(ListedPlans([ORDINARY._replace(prefill_tokens=4)]))
    # The first decodes after the third round, whose last 2 tokens are the second's: four chunks and
    # one verification.
    assert power.tokens == [(12 + 1) / 5, (4 + 2) / 2, 2, 2, 1]
    assert engine.counters["prefilled"] == 16


def test_objectives_on_completion_and_queue_age(clock: HandClock) -> None:
    classes = ClassTable(
        (
            SLOClass("whole", math.inf, completion_ratio=8.0),  # a second
            SLOClass("seated", math.inf, queue_age_ratio=8.0),
        )
    )
    requests = [Request(i, i // 2, [1], 3, 0.0) for i in range(4)]
    engine = scripted_engine(clock, classes, requests, [[5, 6, 7]] * 4, slots=1)
    records = engine.serve(ListedPlans([ORDINARY]))
    # The queue age objective lifts 2 and 3 over 1.
    assert [(r.id, r.finish_s) for r in records] == [(0, 1.0), (2, 2.0), (3, 3.0), (1, 4.0)]
    assert [r.queue_age_s for r in records] == [0.0, 1.0, 2.0, 3.0]
    assert [r.completion_met for r in records] == [True, True, True, False]
    assert [r.queue_age_met for r in records] == [True, True, False, True]
    assert [r.attained for r in records] == [True, True, False, False]
    assert all(r.has_objective and r.tpot_met and r.ttft_met for r in records)
    assert records[0].completion_objective_s == records[1].queue_age_objective_s == 1.0
