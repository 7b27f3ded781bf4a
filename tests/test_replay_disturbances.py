"""Disturbances on replay beside acceptance: slow drafts, power caps, memory, prompt lengths."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engine.profile.hardware_profile import PowerUse
from engine.profile.power_model import StagePower, capped
from engine.protocol import Controller, Outcome, Plan, View, uniform_plan
from engine.replay.drawing import RecordedDrawing
from engine.replay.power_levels import LEVELS, PowerLevels, level_of
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayConfig, ReplayServer
from engine.workload import (
    Disturbance,
    Disturbances,
    Regime,
    WorkloadConfig,
    disturbances_of,
)
from tests.tiny_recording import asked, known_profile, recorded, replay_server

STAGED = PowerUse((1.0, 65.0), (10.0, 42.0), True, {"draft": 8.0, "prefill": 40.0}, idle_watts=2.0)


class Watching(Controller):
    """One tree for all; keeps views and outcomes."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self.outcomes: list[Outcome] = []

    def plan(self, view: View) -> Plan:
        self.views.append(view)
        return uniform_plan(view.limits, 3, 2, 6)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def staged_server(**config: object) -> ReplayServer:
    """A device whose stages draw their own watts, 42 at most."""
    manifest, recording = recorded()
    profile = replace(known_profile(manifest), power=STAGED)
    sizes = ReplayConfig(slots=4, capacity_tokens=192)
    return ReplayServer(manifest, recording, profile, replace(sizes, **config))  # type: ignore[arg-type]


def watched(server: ReplayServer, *wrong: Disturbance) -> Watching:
    """Four requests from the start, to the end."""
    watching = Watching()
    server.engine(asked(4, 24), disturbances=Disturbances(wrong)).serve(watching)
    return watching


def always(kind: str, value: float) -> Disturbance:
    return Disturbance(kind, 0.0, math.inf, value)


def times(outcomes: list[Outcome], *stages: str) -> np.ndarray:
    """Seconds [iterations, stages]."""
    return np.array([[getattr(o, f"{stage}_s") for stage in stages] for o in outcomes])


# -- draft time ----------------------------------------------------------------------------------


def test_drafting_takes_so_many_times_as_long_and_nothing_else_does() -> None:
    plain, slow = watched(replay_server()), watched(replay_server(), always("draft_time", 3.0))
    assert (times(slow.outcomes, "draft") == 3 * times(plain.outcomes, "draft")).all()
    others = "prefill", "verify", "select", "controller", "other"
    assert times(slow.outcomes, *others) == pytest.approx(times(plain.outcomes, *others))
    fast = watched(replay_server(), always("draft_time", 0.5))
    assert times(fast.outcomes, "draft").sum() == times(plain.outcomes, "draft").sum() / 2


# -- power caps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [True, False])
def test_times_follow_the_capped_profile_while_a_cap_holds(stages: bool) -> None:
    server = staged_server() if stages else replay_server()
    free = server.profile
    until_s = 0.25
    wrong = Disturbance("power_cap", 0.0, until_s, 0.45)
    watching, tight = watched(server, wrong), capped(free, 0.45 * 42.0)
    held = 0
    for view, outcome, after in zip(
        watching.views, watching.outcomes, [*watching.views[1:], None], strict=False
    ):
        is_capped = view.clock_s < until_s
        assert view.power_cap_watts == (pytest.approx(0.45 * 42.0) if is_capped else math.inf)
        if after is not None and is_capped != (after.clock_s < until_s):
            continue  # it ends in the midst of this one
        n, kv = int(outcome.verified.sum()), int(view.context_tokens[view.active].sum())
        profile = tight if is_capped else free
        expected_s = float(profile.verify_s(n, kv, int(view.active.sum())))
        assert outcome.verify_s == pytest.approx(expected_s, rel=1e-9)
        held += is_capped
        if is_capped:
            assert outcome.energy_joules <= 0.45 * 42.0 * outcome.iteration_s
    assert 2 <= held < len(watching.outcomes) - 2


def test_of_two_caps_the_smaller_counts_and_a_constant_one_is_shown() -> None:
    server = staged_server(power_cap_watts=20.0)
    assert {view.power_cap_watts for view in watched(server).views} == {20.0}
    tight, loose = (watched(server, always("power_cap", share)) for share in (0.3, 0.9))
    assert all(view.power_cap_watts == pytest.approx(0.3 * 42.0) for view in tight.views)
    assert {view.power_cap_watts for view in loose.views} == {20.0}
    shared = times(loose.outcomes, "verify")
    assert shared.tolist() == times(watched(server).outcomes, "verify").tolist()
    assert times(tight.outcomes, "verify").sum() > shared.sum()
    assert {view.power_cap_watts for view in watched(staged_server()).views} == {math.inf}


def test_a_cap_that_cannot_be_kept_means_the_lowest_clock() -> None:
    levels = PowerLevels(replace(known_profile(recorded()[0]), power=STAGED))
    lowest, low = levels.at(1), levels.at(6)  # 0.42 and 2.52 of 42 W, of which 2 with nothing to do
    assert lowest.profile.verify.curve.at(30.0) == pytest.approx(
        low.profile.verify.curve.at(30.0), rel=1e-6
    )
    assert levels.cap_watts(1) == pytest.approx(0.42)
    assert levels.at(LEVELS).profile.power == STAGED and levels.at(7) is levels.at(7)
    assert isinstance(levels.at(LEVELS).power, StagePower)


def test_ramps_are_climbed_in_whole_per_cents() -> None:
    assert [level_of(share) for share in (0.01, 0.504, 0.506, 1.0)] == [1, 50, 51, LEVELS]
    ramp = Disturbance("power_cap", 0.0, 1.2, 0.4, ramp_s=0.6)
    seen = [view.power_cap_watts / 42.0 for view in watched(staged_server(), ramp).views]
    shares = [share for share in seen if share < 1]
    assert all(100 * share == pytest.approx(round(100 * share)) for share in shares)
    falls = [b < a for a, b in pairwise(shares)]
    assert any(falls) and not all(falls)


# -- memory --------------------------------------------------------------------------------------


def test_memory_is_withdrawn_while_it_lasts() -> None:
    engine = replay_server().engine(
        asked(4), disturbances=Disturbances([Disturbance("memory", 0.1, 0.2, 0.75)])
    )
    watching = Watching()
    records = engine.serve(watching)
    pages = {view.clock_s: view.kv_free_pages for view in watching.views}
    assert min(pages.values()) <= 0 and engine.counters["preempted"] == 3
    assert all(record.status == "finished" for record in records)


# -- from a workload -----------------------------------------------------------------------------

WORK = WorkloadConfig(
    regimes=(Regime(0.4, 0.9), Regime(0.4, 0.9, acceptance=0.0, draft_time=2.0)),
    duration_s=0.8, max_tokens=16,
)  # fmt: skip


def test_a_workloads_regimes_reach_the_engine() -> None:
    server = replay_server()
    requests = RecordedDrawing(server, WORK)(np.random.default_rng(4))
    assert disturbances_of(requests).value("acceptance", 0.5) == 0.0
    watching = Watching()
    server.engine(requests).serve(watching)
    by_regime: dict[bool, list[Outcome]] = {True: [], False: []}
    for view, outcome in zip(watching.views, watching.outcomes, strict=True):
        by_regime[0.4 <= view.clock_s < 0.79].append(outcome)
    assert len(by_regime[True]) > 3
    assert max(int(o.accepted_length.max()) for o in by_regime[True]) == 1
    assert max(int(o.accepted_length.max()) for o in by_regime[False]) > 1


def test_a_stretched_prompt_is_the_nearest_that_is_recorded() -> None:
    server = replay_server()
    plain = WorkloadConfig(load=2.0, duration_s=2.0, max_tokens=8)
    lengths = {}
    for factor in (1.0, 0.01, 100.0):
        wrong = (Disturbance("prompt_length", 0.0, 9.0, factor),)
        drawing = RecordedDrawing(server, replace(plain, disturbances=wrong))
        requests = drawing(np.random.default_rng(1))
        lengths[factor] = [len(request.prompt) for request in requests]
        recorded_requests = [r for r in requests if isinstance(r, RecordedRequest)]
        texts = [request.text for request in recorded_requests if request.slo_class == 0]
        assert all(a != b for a, b in pairwise(texts))  # as ever, none twice in a row
    drawn = [len(r.prompt) for r in RecordedDrawing(server, plain)(np.random.default_rng(1))]
    assert lengths[1.0] == drawn
    assert np.mean(lengths[0.01]) < np.mean(drawn) < np.mean(lengths[100.0])
