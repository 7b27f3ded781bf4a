"""The loop around the kernels: prompts, admission, what a controller sees and what it may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from engine.classes import DEFAULT_CLASSES
from engine.loop import Engine, EngineSettings
from engine.protocol import Bools, Candidates, Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from tests.random_plans import Choice, ListedPlans, RandomPlans

LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=10)
CAPACITY = 64


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, 10, limits=LIMITS, capacity_tokens=CAPACITY)
    torch.set_num_threads(threads)


def requests(*prompt_lengths: int, max_tokens: int = 12) -> list[Request]:
    """Requests that all arrive at once."""
    rng = np.random.default_rng(0)
    return [
        Request(i, i % 3, rng.integers(0, 10, n).tolist(), max_tokens, 0.0)
        for i, n in enumerate(prompt_lengths)
    ]


def started(server: LiveServer, *prompt_lengths: int, **kwargs: int) -> tuple[Engine, View]:
    """An engine at its first decision."""
    engine = server.engine(requests(*prompt_lengths, **kwargs))
    view = engine.next_decision()
    assert view is not None
    return engine, view


# -- prefill and admission -----------------------------------------------------------------------


def test_a_prompt_is_read_in_chunks(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[tuple[int, int]] = []
    prefill = server.backend.prefill

    def noted(slot: int, slots: object, end: int) -> int:
        chunks.append((slot, end))
        return prefill(slot, slots, end)  # type: ignore[arg-type]

    monkeypatch.setattr(server.backend, "prefill", noted)
    settings = EngineSettings(LIMITS, CAPACITY, prefill_tokens=5)
    engine = server.engine(requests(3, 12, 4), DEFAULT_CLASSES, settings)
    view = engine.next_decision()
    assert view is not None
    # Five tokens: the first prompt and the beginning of the second; then decoding goes on.
    assert chunks == [(0, 3), (1, 2)]
    assert view.active.tolist() == [True, False, False]
    assert view.prefilling == 2
    engine.run_iteration(view, ListedPlans([Choice(0, 1, 0, 0, 11, 3)]))
    view = engine.next_decision()
    assert view is not None
    assert chunks[2:] == [(1, 12), (2, 1)]  # the plan's eleven tokens
    assert view.context_tokens.tolist() == [4, 12, 0]
    assert engine.counters["prefilled"] == 3 + 12 + 1


def test_a_plan_limits_who_runs(server: LiveServer) -> None:
    one = ListedPlans([Choice(0, 1, 0, 0, 256, 1)])
    engine, view = started(server, 4, 5, 6, 7, 8, max_tokens=4)
    assert view.active.all()  # no plan had said anything yet
    engine.run_iteration(view, one)
    while (later := engine.next_decision()) is not None:
        # The three that run may finish; after them one at a time.
        assert later.active.sum() == 1 or later.tokens_out[later.active].min() > 0
        engine.run_iteration(later, one)
    assert [r.id for r in engine.records()] == [0, 1, 2, 3, 4]


# -- what a controller sees and may do -----------------------------------------------------------


def test_the_view_at_the_first_decision(server: LiveServer) -> None:
    engine, view = started(server, 4, 7, max_tokens=9)
    assert view.active.tolist() == [True, True, False]
    assert view.slo_class[:2].tolist() == [0, 1]
    assert view.context_tokens.tolist() == [4, 7, 0]
    assert view.remaining_tokens.tolist() == [8, 8, 0]
    assert view.tokens_out.tolist() == [0, 0, 0]
    assert view.kv_total_tokens == 3 * CAPACITY
    assert view.kv_free_tokens == 3 * CAPACITY - 11
    assert view.class_names == ("coding", "chat", "summarization")
    ratios = view.class_tpot_objective_s / view.unloaded_tpot_s
    assert ratios.tolist() == pytest.approx([1.2, 1.7, 5.0])
    assert view.iteration_s == 0.0
    assert view.limits == LIMITS
    late = view.decode_time_s / np.where(view.active, view.tpot_objective_s, 1.0)
    assert view.slack_tokens == pytest.approx(-late)
    assert (view.decode_time_s[:2] > 0).any()
    # What a controller does to its view must not reach the engine.
    for array in view:
        if isinstance(array, np.ndarray):
            array[...] = 0
    again = engine.run_iteration(view._replace(remaining_tokens=np.full(3, 8)), DEEP)
    assert again.ran.tolist() == [True, True, False]
    assert engine.slots.context[0, 0] == 4 + again.accepted_length[0]


DEEP = ListedPlans([Choice(4, 2, 8, 30, 256, 3)])


class Careful(Controller):
    """Stops slot 0 after one step and slot 1 after two, and keeps a chain of each."""

    def __init__(self) -> None:
        self.sizes: list[list[int]] = []
        self.outcomes: list[Outcome] = []

    def plan(self, view: View) -> Plan:
        return uniform_plan(view.limits, 4, 2, 8)

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools:
        self.sizes.append(candidates.size.tolist())
        return np.array([False, step < 2, True])

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        self.sizes.append(candidates.size.tolist())
        mask = np.ones(candidates.parent.shape, np.bool_)
        mask[:, 0] = False  # and with it all that stands on it
        return mask

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def test_a_controller_may_stop_drafting_and_choose_nodes(server: LiveServer) -> None:
    engine, view = started(server, 4, 7, 5)
    controller = Careful()
    outcome = engine.run_iteration(view, controller)
    # Two candidates after step 1, then four more a step for those who draft on.
    assert controller.sizes == [[2, 2, 2], [2, 6, 6], [2, 6, 10], [2, 6, 14]]
    assert outcome.drafted.tolist() == [2, 6, 14]
    kept = engine.trees.kept[0]
    assert not kept[:, 0].any() and kept[:, 1].all()
    for slot, node in np.argwhere(kept):
        parent = engine.trees.parent[0, slot, node]
        assert parent < 0 or kept[slot, parent]
    asked = np.array([1, 5, 13])
    assert outcome.shrunk == (asked - kept.sum(1)).sum() > 0
    assert outcome.verified.tolist() == (kept.sum(1) + 1).tolist()
    assert controller.outcomes == [outcome]


def test_a_batch_budget_is_kept_and_its_cuts_counted(server: LiveServer) -> None:
    engine, view = started(server, 4, 7, 5)
    outcome = engine.run_iteration(view, ListedPlans([Choice(3, 3, 6, 7, 256, 3)]))
    assert outcome.verified.sum() == 7 + 3
    assert outcome.shrunk == 3 * 6 - 7


def test_an_outcome_adds_up(server: LiveServer) -> None:
    engine = server.engine(requests(5, 9, 2, 6, max_tokens=20))
    controller = RandomPlans(np.random.default_rng(0))
    outcomes: list[Outcome] = []
    end_s = engine.clock_s
    while (view := engine.next_decision()) is not None:
        outcome = engine.run_iteration(view, controller)
        # Iterations follow one another; what observe() takes opens the next one.
        assert outcome.start_s == pytest.approx(end_s)
        end_s = outcome.start_s + outcome.iteration_s
        assert end_s <= engine.clock_s + 1e-9
        assert (outcome.accepted_length[outcome.ran] >= 1).all()
        assert (outcome.accepted <= outcome.proposed).all()
        everything = outcome.accepted_within[:, -1, -1]
        assert everything.tolist() == outcome.accepted_length.tolist()
        assert (np.diff(outcome.accepted_within, axis=1) >= 0).all()
        assert (np.diff(outcome.accepted_within, axis=2) >= 0).all()
        outcomes.append(outcome)
    records = engine.records()
    emitted = sum(int(o.accepted_length.sum()) for o in outcomes)
    assert emitted == engine.counters["emitted"] == sum(r.output_tokens - 1 for r in records)
    assert sum(int(o.finished.sum()) for o in outcomes) == 4
    valid = sum(int(o.valid_tokens.sum()) for o in outcomes)
    assert valid + 4 == sum(r.valid_tokens for r in records)  # and the four first tokens
    assert sum(int(o.verified.sum()) for o in outcomes) == sum(r.verified_nodes for r in records)
    for record in records:
        decode_s = record.finish_s - record.first_token_s
        assert record.tpot_s == pytest.approx(decode_s / (record.output_tokens - 1))


def outputs(served: Sequence[Request]) -> list[list[int]]:
    """What was answered."""
    return [r.output for r in served]


def test_an_episode_that_was_cut_leaves_nothing_behind(server: LiveServer) -> None:
    first = requests(5, 9, 2)
    server.engine(first).serve(DEEP)
    server.engine(requests(30, 21, 8)).serve(DEEP, max_iterations=2)
    again = requests(5, 9, 2)
    server.engine(again).serve(DEEP)
    assert outputs(again) == outputs(first)
