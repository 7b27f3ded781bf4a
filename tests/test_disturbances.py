"""Disturbances: what holds when, read in three ways alike, and what they do to arrivals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.classes import DEFAULT_CLASSES
from engine.drafters.protocol import Drafter
from engine.drafters.scheduled import Scheduled
from engine.errors import UserError
from engine.protocol import Limits
from engine.request import Request
from engine.tiny import tiny_server
from engine.workload import (
    Arrivals,
    Disturbance,
    Disturbances,
    DrawnDisturbance,
    PromptSet,
    Regime,
    WorkloadConfig,
    build_episode,
    config_from_table,
    draw_arrivals,
    workload,
)
from engine.workload.describe import cv_of_gaps
from engine.workload.disturbance_kernel import read_disturbances
from engine.workload.disturbances import COLUMNS, KINDS, NEUTRAL, stacked
from engine.workload.drafter_schedule import RAMP_STEPS, disturbed, drafter_faults
from tests.random_plans import Choice, ListedPlans
from tests.scripted_drafter import ScriptedDrafter
from tests.twins.read_disturbances import read_disturbance

NAMES = DEFAULT_CLASSES.names
BASE = WorkloadConfig(rate_rps=20.0, duration_s=300.0)


def drawn(config: WorkloadConfig, seed: int = 0) -> Arrivals:
    return draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(seed))


def under(*faults: Disturbance, seed: int = 0) -> Arrivals:
    return drawn(replace(BASE, disturbances=faults), seed)


def inside(arrivals: Arrivals, start_s: float, end_s: float) -> int:
    return int(((arrivals.arrival_s >= start_s) & (arrivals.arrival_s < end_s)).sum())


# -- the table -------------------------------------------------------------------------------------


def test_a_step_holds_from_its_start_until_its_end() -> None:
    table = Disturbances([Disturbance("acceptance", 10.0, 20.0, 0.5)])
    times = (0.0, 9.99, 10.0, 19.99, 20.0, 1e9)
    assert [table.value("acceptance", t) for t in times] == [1.0, 1.0, 0.5, 0.5, 1.0, 1.0]
    assert table.value("memory", 15.0) == 0.0


def test_a_ramp_comes_and_goes_inside_its_time() -> None:
    table = Disturbances([Disturbance("draft_time", 10.0, 30.0, 3.0, ramp_s=4.0)])
    times = (10.0, 12.0, 14.0, 20.0, 26.0, 29.0, 30.0)
    assert [table.value("draft_time", t) for t in times] == pytest.approx(
        [1.0, 2.0, 3.0, 3.0, 3.0, 1.5, 1.0]
    )


def test_a_ramp_to_no_end_stays() -> None:
    table = Disturbances([Disturbance("acceptance", 5.0, math.inf, 0.6, ramp_s=10.0)])
    assert [table.value("acceptance", t) for t in (5.0, 10.0, 15.0, 1e6)] == pytest.approx(
        [1.0, 0.8, 0.6, 0.6]
    )


def test_overlapping_ones_multiply_or_the_worst_counts() -> None:
    table = Disturbances(
        [Disturbance(k, 0.0, 20.0, a) for k, a in (("acceptance", 0.5), ("memory", 0.2))]
        + [Disturbance(k, 10.0, 30.0, b) for k, b in (("acceptance", 0.8), ("memory", 0.6))]
        + [Disturbance("power_cap", 0.0, 20.0, 0.9), Disturbance("power_cap", 10.0, 30.0, 0.7)]
    )
    seen = {k: [table.value(k, t) for t in (5.0, 15.0, 25.0)] for k in COLUMNS}
    assert seen["acceptance"] == pytest.approx([0.5, 0.4, 0.8])
    assert seen["memory"] == [0.2, 0.6, 0.6] and seen["power_cap"] == [0.9, 0.7, 0.7]
    assert seen["burst"] == [1.0, 1.0, 1.0]


def test_a_mix_is_of_a_class() -> None:
    table = Disturbances([Disturbance("mix", 1.0, 2.0, 4.0, slo_class="chat")])
    assert [table.value("mix", 1.5, name) for name in NAMES] == [1.0, 4.0, 1.0]
    assert table.has("mix") and not table.has("burst")
    with pytest.raises(ValueError, match="unknown kind 'accptance'"):
        table.value("accptance", 0.0)


@st.composite
def faults(draw: st.DrawFn) -> Disturbance:
    name = draw(st.sampled_from(COLUMNS))
    start_s = draw(st.floats(0.0, 50.0))
    lasts_s = draw(st.floats(0.5, 50.0))
    value = draw(st.floats(KINDS[name].low, min(KINDS[name].high, 3.0)))
    ramp_s = draw(st.floats(0.0, lasts_s / 2.001))
    return Disturbance(name, start_s, start_s + lasts_s, value, ramp_s)


@settings(max_examples=60, deadline=None)
@given(
    episodes=st.lists(st.lists(faults(), max_size=4), min_size=1, max_size=3),
    clocks=st.lists(st.floats(0.0, 120.0), min_size=1, max_size=6),
)
def test_scalar_array_kernel_and_twin_agree(
    episodes: list[list[Disturbance]], clocks: list[float]
) -> None:
    tables = [Disturbances(of) for of in episodes]
    schedule = stacked(tables)
    cursor = np.zeros(len(tables), np.int64)
    values = np.empty((len(tables), len(COLUMNS)))
    for clock_s in clocks:  # back and forth
        read_disturbances(schedule, np.full(len(tables), clock_s), cursor, values)
        for r, table in enumerate(tables):
            arrays = table.values(np.array([clock_s]))[0]
            assert values[r] == pytest.approx(arrays, abs=1e-12)
            for k, kind in enumerate(COLUMNS):
                twin = read_disturbance(
                    table.points_s.tolist(),
                    table.level[:, k].tolist(),
                    table.slope[:, k].tolist(),
                    clock_s,
                )
                assert values[r, k] == twin
                assert table.value(kind, clock_s) == pytest.approx(twin, abs=1e-12)


def test_no_disturbance_is_neutral() -> None:
    schedule = stacked([Disturbances(), Disturbances([Disturbance("memory", 1.0, 2.0, 0.5)])])
    values = np.empty((2, len(COLUMNS)))
    read_disturbances(schedule, np.array([1e6, 1.5]), np.zeros(2, np.int64), values)
    assert values[0].tolist() == NEUTRAL.tolist()
    assert values[1, COLUMNS.index("memory")] == 0.5


# -- arrivals --------------------------------------------------------------------------------------


def test_arrival_rate() -> None:
    arrivals = under(Disturbance("arrival_rate", 100.0, 200.0, 3.0))
    assert inside(arrivals, 0.0, 100.0) == pytest.approx(2000, rel=0.1)
    assert inside(arrivals, 100.0, 200.0) == pytest.approx(6000, rel=0.1)
    assert inside(arrivals, 200.0, 300.0) == pytest.approx(2000, rel=0.1)
    quiet = under(Disturbance("arrival_rate", 100.0, 200.0, 0.0))
    assert inside(quiet, 100.0, 200.0) == 0 and inside(quiet, 200.0, 300.0) > 1500
    ramp = under(Disturbance("arrival_rate", 100.0, 200.0, 3.0, ramp_s=50.0))
    assert inside(ramp, 100.0, 200.0) == pytest.approx(4000, rel=0.1)
    assert inside(ramp, 100.0, 110.0) < 0.6 * inside(ramp, 140.0, 150.0)


def test_mix() -> None:
    arrivals = under(Disturbance("mix", 100.0, 200.0, 8.0, slo_class="coding"))
    disturbed_now = (arrivals.arrival_s >= 100.0) & (arrivals.arrival_s < 200.0)
    assert (arrivals.slo_class[disturbed_now] == 0).mean() == pytest.approx(0.8, abs=0.03)
    assert (arrivals.slo_class[~disturbed_now] == 0).mean() == pytest.approx(1 / 3, abs=0.03)
    assert inside(arrivals, 100.0, 200.0) == pytest.approx(2000, rel=0.1)


def test_burst() -> None:
    arrivals = under(Disturbance("burst", 100.0, 200.0, 4.0))
    times = arrivals.arrival_s
    assert cv_of_gaps(times[times < 100.0]) == pytest.approx(1.0, abs=0.1)
    assert cv_of_gaps(times[(times >= 100.0) & (times < 200.0)]) > 2.5
    counts = [
        inside(under(Disturbance("burst", 0.0, 300.0, 4.0), seed=s), 0, 300) for s in range(9)
    ]
    assert np.mean(counts) == pytest.approx(6000, rel=0.1)


def test_a_trace_runs_faster_while_the_rate_is_up(tmp_path: Any) -> None:
    path = tmp_path / "even.csv"
    rows = "".join(f"{i},5,5\n" for i in range(100))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    fault = Disturbance("arrival_rate", 10.0, 20.0, 4.0)
    arrivals = drawn(replace(workload(path), disturbances=(fault,)))
    gaps = np.diff(arrivals.arrival_s)
    assert gaps[:9] == pytest.approx(np.ones(9)) and gaps[11:48] == pytest.approx(np.full(37, 0.25))
    assert gaps[60:] == pytest.approx(np.ones(39)) and len(gaps) == 99


@pytest.mark.parametrize("kind", ["acceptance", "draft_time", "memory", "power_cap"])
def test_what_does_not_concern_arrivals_leaves_them_alone(kind: str) -> None:
    fixed = under(Disturbance(kind, 10.0, 100.0, 0.8 if kind != "draft_time" else 2.0))
    anew = DrawnDisturbance(kind, (0.0, 9.0), (5.0, 9.0), (0.5, 0.9))
    moving = drawn(replace(BASE, drawn_disturbances=(anew,)))
    plain = drawn(BASE)
    for arrivals in (fixed, moving):
        assert arrivals.arrival_s.tolist() == plain.arrival_s.tolist()
        assert arrivals.slo_class.tolist() == plain.slo_class.tolist()
    assert moving.disturbances.of != ()


def test_lengths_move_and_what_is_too_long_is_counted() -> None:
    prompts = PromptSet("small", {name: ("ab cd ef gh ij", "kl mn op qr st") for name in NAMES})
    config = WorkloadConfig(
        rate_rps=5.0,
        duration_s=40.0,
        max_tokens=20,
        disturbances=(
            Disturbance("prompt_length", 10.0, 20.0, 3.0),
            Disturbance("output_length", 20.0, 30.0, 2.0),
        ),
    )

    def built(context: int | None) -> Any:
        return build_episode(
            config, prompts, lambda text: [ord(c) for c in text], 1.0, DEFAULT_CLASSES,
            frozenset(), np.random.default_rng(0), context_tokens=context,
        )  # fmt: skip

    episode = built(None)
    assert episode.clipped == 0
    for request in episode.requests:
        long = 10.0 <= request.arrival_s < 20.0
        assert len(request.prompt) == pytest.approx(42 if long else 14, rel=0.03)
        chatty = 20.0 <= request.arrival_s < 30.0
        assert (20 if chatty else 10) <= request.max_tokens <= (40 if chatty else 20)
    tight = built(50)
    assert 0 < tight.clipped < len(tight.requests)
    for request in tight.requests:
        request.check(50)


# -- drawn by episode ------------------------------------------------------------------------------


def test_drawn_ones_are_of_the_seed() -> None:
    ranges = DrawnDisturbance("acceptance", (10.0, 50.0), (5.0, 20.0), (0.5, 0.9), 4.0)
    config = replace(BASE, drawn_disturbances=(ranges,))
    (first,), (again,), (other,) = (drawn(config, s).disturbances.of for s in (1, 1, 2))
    assert first == again != other
    for seed in range(40):
        (fault,) = drawn(config, seed).disturbances.of
        assert 10.0 <= fault.start_s <= 50.0 and 5.0 <= fault.end_s - fault.start_s <= 20.0 + 1e-9
        assert 0.5 <= fault.value <= 0.9 and fault.ramp_s <= 4.0
    rare = replace(config, drawn_disturbances=(replace(ranges, probability=0.25),))
    count = sum(len(drawn(rare, seed).disturbances.of) for seed in range(200))
    assert 30 <= count <= 70


def test_regimes_carry_their_drift() -> None:
    regimes = (Regime(50.0, 1.0, acceptance=0.8), Regime(50.0, 1.0, draft_time=2.0))
    table = drawn(WorkloadConfig(regimes=regimes, duration_s=100.0)).disturbances
    assert [table.value("acceptance", t) for t in (10.0, 60.0)] == [0.8, 1.0]
    assert [table.value("draft_time", t) for t in (10.0, 60.0)] == [1.0, 2.0]


# -- the live drafter ------------------------------------------------------------------------------


def test_a_live_drafter_gets_the_faults_that_it_can_have() -> None:
    table = Disturbances(
        [
            Disturbance("draft_time", 10.0, 30.0, 2.0),
            Disturbance("acceptance", 20.0, 40.0, 0.7),
            Disturbance("acceptance", 50.0, 60.0, 1.2),  # better than it is: not to be had
            Disturbance("memory", 0.0, 99.0, 0.5),
        ]
    )
    found = [(f.begin, f.end, f.slowdown, round(f.degraded, 9)) for f in drafter_faults(table)]
    assert found == [(10.0, 20.0, 2.0, 0.0), (20.0, 30.0, 2.0, 0.3), (30.0, 40.0, 1.0, 0.3)]
    ramp = drafter_faults(Disturbances([Disturbance("acceptance", 0.0, math.inf, 0.5, 10.0)]))
    stairs = [f.degraded for f in ramp]
    assert len(ramp) == RAMP_STEPS + 1 and stairs == sorted(stairs)
    assert stairs[-1] == 0.5 and ramp[-1].end == math.inf


def test_the_schedule_follows_the_engines_clock() -> None:
    rng = np.random.default_rng(0)
    plain = ScriptedDrafter({}, 10, rng, 1.0, likeliest=True)
    assert disturbed(plain, Disturbances(), 10, rng, lambda: 0.0) is plain
    clock = [0.0]
    table = Disturbances([Disturbance("draft_time", 5.0, 6.0, 3.0)])
    slow = disturbed(plain, table, 10, rng, lambda: clock[0])
    assert isinstance(slow, Scheduled) and slow.active() is None
    clock[0] = 5.5
    fault = slow.active()
    assert fault is not None and fault.slowdown == 3.0


def test_a_live_engine_accepts_nothing_while_drafts_are_spoilt() -> None:
    limits = Limits(slots=1, max_depth=3, max_width=1, max_nodes=3)
    server = tiny_server(0, 16, limits=limits, capacity_tokens=64)

    def served(drafter: Drafter, faults: Disturbances) -> tuple[list[int], int]:
        request = Request(0, 0, [1, 2, 3], 41, 0.0)
        engine = server.engine([request])
        rng = np.random.default_rng(0)
        server.guard.drafter = disturbed(drafter, faults, 16, rng, lambda: engine.clock_s)
        engine.serve(ListedPlans([Choice(3, 1, 3, 6, 64, 1)]))
        return request.output, engine.counters["iterations"]

    text, _ = served(server.drafter, Disturbances())
    known = {0: [1, 2, 3, *text]}
    right = ScriptedDrafter(known, 16, np.random.default_rng(0), 1.0, likeliest=True)
    spoilt = Disturbances([Disturbance("acceptance", 0.0, math.inf, 0.0)])
    over = Disturbances([Disturbance("acceptance", 1e9, math.inf, 0.0)])
    # Always right: four tokens an iteration behind the first. Always spoilt: one.
    assert served(right, Disturbances()) == (text, 10)
    assert served(right, over) == (text, 10)
    assert served(right, spoilt) == (text, 40)


# -- what is refused -------------------------------------------------------------------------------

ACCEPTANCE = {"kind": "acceptance", "start_s": 0, "end_s": 9, "value": 0.5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "acceptence"}, "unknown kind 'acceptence'; nearest is 'acceptance'"),
        ({"kind": 3}, "unknown kind 3"),
        ({"start_s": -1}, "start_s is -1"),
        ({"start_s": float("nan")}, "start_s is nan"),
        ({"end_s": 0}, "from 0 to 0 s; expected an end after"),
        ({"end_s": float("nan")}, "expected an end after the start"),
        ({"value": float("nan")}, "a factor on the probability of acceptance, is nan"),
        ({"value": 2.5}, "is 2.5; expected a number from 0 to 2"),
        ({"value": True}, "is True"),
        ({"ramp_s": 5}, "ramp_s is 5; expected a number from 0 to 4.5"),
        ({"slo_class": "chat"}, "expected a class name with the kind mix"),
        ({"kind": "mix"}, "slo_class is ''"),
        ({"kind": "memory", "value": 1.0}, "share of the KV pages withdrawn, is 1.0"),
        ({"strat_s": 1}, "disturbance 1: unknown key 'strat_s'; nearest is 'start_s'"),
    ],
)
def test_bad_disturbance(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config_from_table({"load": 1.0, "disturbances": [ACCEPTANCE | changes]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_s": [5, 1]}, "start_s is .*low and then high"),
        ({"lasts_s": [0, 5]}, "lasts_s is 0"),
        ({"value": [0.5, 9]}, "value is 9"),
        ({"probability": 2}, "probability is 2"),
    ],
)
def test_bad_drawn_disturbance(changes: dict[str, Any], message: str) -> None:
    table = {"kind": "acceptance", "start_s": 1, "lasts_s": [1, 2], "value": [0.5, 0.6]} | changes
    with pytest.raises(UserError, match=message):
        config_from_table({"load": 1.0, "drawn_disturbances": [table]})


def test_disturbances_meet_the_deployment_and_the_trace() -> None:
    with pytest.raises(UserError, match="a disturbance names the class 'chatt'; nearest is 'chat'"):
        under(Disturbance("mix", 0.0, 1.0, 2.0, slo_class="chatt"))
    with pytest.raises(UserError, match="a disturbance of burst needs drawn arrivals"):
        config_from_table(
            {"trace": "a.csv", "disturbances": [ACCEPTANCE | {"kind": "burst", "value": 2}]}
        )
    with pytest.raises(UserError, match="about 3e\\+06 requests"):
        drawn(
            WorkloadConfig(
                rate_rps=300.0,
                duration_s=100.0,
                disturbances=(Disturbance("arrival_rate", 0.0, 100.0, 100.0),),
            )
        )
