"""A run cut into windows: nothing is lost or counted twice, changes of action are seen."""

import math

import numpy as np
import pytest

from engine.classes import ClassTable, SLOClass
from engine.errors import UserError
from engine.observability.observing import serve_observed
from engine.protocol import Candidates, Controller, Limits, Plan, View, uniform_plan
from engine.request import Request, RequestRecord
from engine.tiny import tiny_server
from eval.windows import Timeline, TimelineObserver, listen
from policies.registry import make
from tests.scripted_drafter import HandClock
from tests.scripted_engine import scripted_engine

CLASSES = ClassTable((SLOClass("even", 2.0), SLOClass("free", math.inf)))


def test_events_by_hand() -> None:
    timeline = Timeline(
        valid_at_s=np.array([0.9, 1.0, 1.9, 2.0, 3.5]),
        valid_tokens=np.array([4, 1, 2, 8, 16]),
        iteration_at_s=np.array([1.0, 1.5, 2.5]),
        changes=np.array([1.0, 0.5, 0.0]),
        judged_at_s=np.array([1.0, 1.2, 3.2]),
        missed=np.array([True, False, True]),
    )
    # Windows [1, 2) and [2, 3); the half second to 3.5 makes none.
    series = timeline.series(1.0, 3.5, 1.0)
    assert series.valid_tps.tolist() == [3.0, 8.0]
    assert series.iterations.tolist() == [2, 1]
    assert (series.judged.tolist(), series.violations.tolist()) == ([2, 0], [1, 0])
    assert series.attainment[0] == 0.5 and math.isnan(series.attainment[1])
    assert series.churn_per_s.tolist() == [1.5, 0.0]
    # Windows twice as long: half the rate of all that came.
    assert timeline.series(0.0, 4.0, 2.0).valid_tps.tolist() == [3.5, 12.0]


@pytest.mark.parametrize("window_s", [3.0, 0.0, -1.0, math.nan])
def test_a_window_that_does_not_fit_is_told(window_s: float) -> None:
    empty = TimelineObserver().timeline()
    with pytest.raises(UserError, match="none fits; expected a shorter one"):
        empty.series(0.0, 2.5, window_s)


def served(controller: Controller) -> tuple[Timeline, list[RequestRecord], float]:
    """A tiny server's run, recorded."""
    server = tiny_server(limits=Limits(slots=3))
    rng = np.random.default_rng(1)
    requests = [Request(i, i % 3, rng.integers(0, 64, 6).tolist(), 12, 0.0) for i in range(6)]
    engine = server.engine(requests)
    heard = listen(controller)
    observer = TimelineObserver(heard)
    records = serve_observed(engine, heard, [observer])
    return observer.timeline(), records, engine.clock_s


def test_windows_hold_all_that_the_ledger_holds() -> None:
    timeline, records, clock_s = served(make("eagle3(3, 2, 4)"))
    series = timeline.series(0.0, clock_s * 1.01, clock_s * 1.01 / 7)
    assert len(series.valid_tps) == 7
    valid = series.valid_tps.sum() * series.window_s
    assert valid == pytest.approx(sum(r.valid_tokens for r in records))
    assert series.judged.sum() == sum(r.has_objective for r in records)
    missed = sum(r.has_objective and not r.attained for r in records)
    assert series.violations.sum() == missed
    assert series.iterations.sum() == len(timeline.iteration_at_s)


def test_a_controller_that_never_changes_has_no_churn() -> None:
    timeline, _, _ = served(make("chain(2)"))
    assert len(timeline.changes) > 3
    assert not timeline.changes.any()


class Alternating(Controller):
    """Another depth for one of two requests in every iteration."""

    name = "alternating"
    turn = 0

    def plan(self, view: View) -> Plan:
        """Slot 0 keeps to depth 1."""
        self.turn += 1
        plan = uniform_plan(view.limits, 1, 1, 1)
        plan.depth[1] = self.turn % 2
        return plan


def test_churn_is_the_share_of_running_requests_whose_plan_changed(clock: HandClock) -> None:
    requests = [Request(i, i % 2, [1], 9, 0.0) for i in range(2)]
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 9] * 2)
    heard = listen(Alternating())
    observer = TimelineObserver(heard)
    serve_observed(engine, heard, [observer])
    changes = observer.timeline().changes.tolist()
    # The first iteration has none before it; in the others one of two changed while both ran.
    assert changes[0] == 0.0
    assert changes[1:4] == [0.5] * 3


def test_a_new_request_in_a_slot_is_no_change(clock: HandClock) -> None:
    class ByRequest(Controller):
        def plan(self, view: View) -> Plan:
            return uniform_plan(view.limits, 1 + int(view.request[0]), 1, 4)

    requests = [Request(i, 0, [1], 5, 0.0) for i in range(3)]
    engine = scripted_engine(clock, CLASSES, requests, [[5] * 5] * 3, slots=1)
    heard = listen(ByRequest())
    observer = TimelineObserver(heard)
    serve_observed(engine, heard, [observer])
    assert len(observer.timeline().changes) >= 3
    assert not observer.timeline().changes.any()


def test_listening_leaves_who_selects_its_selection() -> None:
    class Picky(Controller):
        asked = 0

        def plan(self, view: View) -> Plan:
            return uniform_plan(view.limits, 2, 2, 4)

        def select(self, view: View, plan: Plan, candidates: Candidates) -> np.ndarray:
            self.asked += 1
            return np.zeros(candidates.parent.shape, np.bool_)

    picky = Picky()
    heard = listen(picky)
    assert type(heard).select is not Controller.select
    assert type(heard).extend is Controller.extend  # asking it would cost time
    served(picky)
    assert picky.asked > 0
