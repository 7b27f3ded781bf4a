"""What serving cost, from two iterations whose numbers can be added in the head."""

import math
from typing import Any

import numpy as np
import pytest

from engine.protocol import Controller, Limits, Outcome
from engine.request import Request, RequestRecord, Status
from engine.tiny import tiny_server
from eval import runner
from eval.cost import Cost
from eval.emissions import Emissions
from eval.metrics import inter_token_gaps_s
from policies.registry import make
from tests.random_plans import Choice, ListedPlans
from tests.scripted_drafter import HandClock
from tests.scripted_engine import ORDINARY, scripted_engine
from tests.test_ledger import CLASSES


def outcome(**changes: Any) -> Outcome:
    """Two slots decode, two do not."""
    none = np.zeros(4, np.int64)
    values: dict[str, Any] = dict.fromkeys(Outcome._fields, none)
    values |= {
        "ran": np.array([True, True, False, False]),
        "accepted_length": np.array([3, 1, 0, 0]),
        "drafted": np.array([10, 6, 0, 0]),
        "verified": np.array([5, 3, 0, 0]),  # roots included
        "accepted": np.array([[True, True], [False, False], [False] * 2, [False] * 2]),
        "energy_joules": 6.0,
    }
    times = ("prefill_s", "draft_s", "select_s", "verify_s", "controller_s", "other_s")
    return Outcome(**(values | dict.fromkeys(times, 0.25) | changes))


@pytest.fixture
def cost() -> Cost:
    found = Cost()
    found.add(outcome())
    found.add(outcome(energy_joules=2.0, controller_s=0.75))
    return found


def test_waste_is_what_was_verified_or_drafted_in_vain(cost: Cost) -> None:
    # An iteration: trees of 5 and 3 nodes, root included, 2 and 0 drafts accepted: 5 - 1 - 2 = 2
    # and 3 - 1 - 0 = 2 rejected. Drafted and never verified: 10 - 4 = 6 and 6 - 2 = 4.
    assert cost.rejected_nodes == 2 * (2 + 2)
    assert cost.wasted_nodes == 2 * (4 + 10)
    assert cost.waste_share == 28 / 32


def test_rates(cost: Cost) -> None:
    assert cost.tokens_per_iteration == (4 + 4) / (2 + 2)
    assert cost.busy_s == 6 * 0.25 + 5 * 0.25 + 0.75
    assert cost.decision_s == 0.5
    assert cost.tokens_per_device_s(7) == 7 / 3.5
    assert cost.joules_per(8) == 1.0  # emitted
    assert cost.joules_per(4) == 2.0  # of them valid: each of these bears the others' energy


def test_nothing_to_divide_by() -> None:
    empty = Cost()
    ratios = (empty.waste_share, empty.tokens_per_iteration, empty.joules_per(0))
    assert all(map(math.isnan, ratios))
    assert empty.decision_s == 0.0


def serve_scripted(
    clock: HandClock, plan: Choice, requests: list[Request], **options: Any
) -> tuple[runner.Run, list[RequestRecord]]:
    """A run by `plan`, and its records as completed by who watched."""
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 12] * len(requests), **options)
    kept: list[RequestRecord] = []

    def keep(self: object, records: list[RequestRecord]) -> list[RequestRecord]:
        kept.extend(original(self, records))  # type: ignore[arg-type]
        return list(kept)

    original = runner.Emissions.completed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.Emissions, "completed", keep)
        run = runner.serve("listed", ListedPlans([plan]), 0, engine)
    return run, kept


def test_gaps_as_they_were_served(clock: HandClock) -> None:
    # Prefill 0.5 s gives the first token. Each iteration: a chain of 3, all accepted, 4 tokens in
    # 0.25 s. 9 tokens after the first: 4 + 4 + 1 in three iterations.
    chain = Choice(3, 1, 3, 99, 256, 16)
    run, (record,) = serve_scripted(clock, chain, [Request(0, 1, [1, 2], 10, 0.0)])
    assert record.gaps_s == (0.25, 0.25, 0.25)
    assert sorted(inter_token_gaps_s(record)) == [0.0] * 6 + [0.25] * 3
    assert sum(record.gaps_s) == record.finish_s - record.first_token_s
    assert run.metrics.by_class["even"].itl_s.p50 == 0.0
    assert run.metrics.by_class["even"].itl_s.p95 == 0.25
    ordinary, (record,) = serve_scripted(clock, ORDINARY, [Request(0, 1, [1, 2], 10, 0.0)])
    assert record.gaps_s == (0.25,) * 9
    assert ordinary.metrics.by_class["even"].itl_s.p50 == 0.25  # one token a time has no zeros


def test_a_wait_that_the_cut_ended_is_a_gap_if_it_is_the_longest(clock: HandClock) -> None:
    requests = [Request(0, 1, [1], 10, 0.0), Request(1, 1, [1], 10, 0.75)]
    _, records = serve_scripted(clock, ORDINARY, requests, horizon_s=2.0)
    first, second = sorted(records)
    assert first.status is second.status is Status.UNFINISHED
    # First token at 0.5 s, one more at 0.75. Then the other prompt is read (0.5 s) before the next
    # decoding step, so the third comes at 1.5; the fourth at 1.75, the fifth at the cut, 2 s.
    assert first.gaps_s == (0.25, 0.75, 0.25, 0.25)
    assert second.gaps_s == (0.25, 0.25, 0.25)
    engine = scripted_engine(clock, CLASSES, requests[:1], [[5] * 12])
    emissions = Emissions()
    view = engine.next_decision()
    assert view is not None
    emissions.on_iteration(engine, view, engine.run_iteration(view, ListedPlans([ORDINARY])))
    engine.clock_s += 7.0  # starved, then cut
    (starved,) = emissions.completed(engine.close_records())
    assert starved.gaps_s == (0.25, 7.0)


def test_waste_by_request_adds_up_to_the_runs() -> None:
    server = tiny_server(limits=Limits(slots=3))
    rng = np.random.default_rng(0)
    requests = [Request(i, i % 3, rng.integers(0, 64, 6).tolist(), 9, 0.0) for i in range(5)]
    controller: Controller = make("eagle3(3, 2, 4)")
    run = runner.serve("tree", controller, 0, server.engine(requests))
    by_class = run.metrics.by_class.values()
    assert run.wasted_nodes > run.rejected_nodes > 0
    assert sum(c.wasted_nodes for c in by_class) == run.wasted_nodes
    assert run.drafted_nodes * run.waste_share == pytest.approx(run.wasted_nodes)
    assert run.joules_per_valid_token >= run.joules_per_token > 0
    assert run.valid_tokens_per_device_s > 0
    assert run.busy_s <= run.clock_s * (1 + 1e-9)


def test_ordinary_decoding_wastes_nothing() -> None:
    server = tiny_server(limits=Limits(slots=2))
    run = runner.serve("ar", make("autoregressive"), 0, server.engine([Request(0, 0, [1], 5, 0.0)]))
    assert run.wasted_nodes == run.rejected_nodes == run.drafted_nodes == 0
    assert math.isnan(run.waste_share)
