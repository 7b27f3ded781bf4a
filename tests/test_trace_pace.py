"""A trace under a factor on the arrival rate: all of its time is filled, and a stand ends it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.classes import DEFAULT_CLASSES
from engine.workload import Arrivals, Disturbance, Disturbances, WorkloadConfig, draw_arrivals
from engine.workload import workload as workload_of
from engine.workload.describe import summarize
from engine.workload.episode import Pace


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> WorkloadConfig:
    """A request every second for 1,000 s."""
    path = tmp_path_factory.mktemp("trace") / "even.csv"
    rows = "".join(f"{i},5,5\n" for i in range(1000))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    return workload_of(path)


def under(
    config: WorkloadConfig, *faults: Disturbance, duration_s: float | None = None
) -> Arrivals:
    lasts_s = config.duration_s if duration_s is None else duration_s
    config = replace(config, disturbances=faults, duration_s=lasts_s)
    return draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(0))


def rate(start_s: float, end_s: float, value: float, ramp_s: float = 0.0) -> Disturbance:
    return Disturbance("arrival_rate", start_s, end_s, value, ramp_s)


def test_a_faster_trace_fills_its_whole_time(traced: WorkloadConfig) -> None:
    found = under(traced, rate(0.0, 1e6, 2.0), duration_s=100.0)
    assert found.arrival_s.tolist() == [i / 2 for i in range(200)]
    assert found.spans[0].end_s == 100.0 and found.spans[0].rate_rps == 2.0
    part = under(traced, rate(50.0, 100.0, 3.0), duration_s=100.0)
    assert np.histogram(part.arrival_s, [0.0, 50.0, 100.0])[0].tolist() == [50, 150]


def test_a_slower_one_and_one_that_stands_for_a_while(traced: WorkloadConfig) -> None:
    slow = under(traced, rate(0.0, 1e6, 0.5), duration_s=100.0)
    assert slow.arrival_s.tolist() == [2.0 * i for i in range(50)]
    stands = under(traced, rate(20.0, 70.0, 0.0), duration_s=100.0)
    assert stands.arrival_s.tolist() == [*range(20), *range(70, 100)]


@pytest.mark.parametrize("duration_s", [100.0, math.inf])
def test_nothing_comes_after_a_stand_to_the_end(traced: WorkloadConfig, duration_s: float) -> None:
    found = under(traced, rate(20.0, math.inf, 0.0), duration_s=duration_s)
    assert found.arrival_s.tolist() == list(range(20))
    assert found.spans[0].end_s <= 100.0
    summary = summarize(found, DEFAULT_CLASSES.names)
    assert summary.busiest_s == 1 and summary.duration_s <= 100.0
    never = under(traced, rate(0.0, math.inf, 0.0), duration_s=duration_s)
    assert len(never.arrival_s) == 0 and 0 < never.spans[0].end_s <= 100.0
    assert summarize(never, DEFAULT_CLASSES.names).busiest_s == 0


def test_without_a_duration_the_trace_goes_on_to_its_end(traced: WorkloadConfig) -> None:
    found = under(traced, rate(100.0, 200.0, 5.0))
    assert len(found.arrival_s) == 1000
    assert found.arrival_s[-1] == pytest.approx(999.0 - 400.0)
    assert found.spans[0].end_s == pytest.approx(1000.0 - 400.0, abs=1.0)


def test_a_late_second_takes_no_memory() -> None:
    """An array over all seconds of the clock would have 5.5e11 numbers."""
    plain = under(WorkloadConfig(rate_rps=1.0, duration_s=10.0))
    late = plain._replace(arrival_s=np.array([1.0, 1.5, 5.5e11]), slo_class=np.zeros(3, np.int64))
    assert summarize(late, DEFAULT_CLASSES.names).busiest_s == 2


@settings(max_examples=60, deadline=None)
@given(
    faults=st.lists(
        st.tuples(st.floats(0, 40), st.floats(0.5, 40), st.sampled_from([0.0, 0.3, 2.5])),
        max_size=4,
    ),
    times_s=st.lists(st.floats(0, 150), min_size=1, max_size=8),
)
def test_the_pace_inverts_the_integral_of_the_speed(
    faults: list[tuple[float, float, float]], times_s: list[float]
) -> None:
    table = Disturbances([rate(start, start + lasts, value) for start, lasts, value in faults])
    pace = Pace.of(100.0, table)
    edges_s = np.unique(np.clip([0.0, 100.0, *table.points_s.tolist()], 0.0, 100.0))

    def passed(until_s: float) -> float:
        cuts = [*edges_s[edges_s < until_s].tolist(), until_s]
        middles = [(a + b) / 2 for a, b in pairwise(cuts)]
        lengths = np.diff(cuts)
        return float(sum(lengths * [table.value("arrival_rate", at_s) for at_s in middles]))

    assert pace.passed_s[-1] == pytest.approx(passed(100.0))
    for time_s, served_s in zip(times_s, pace.served_at_s(np.array(times_s)), strict=True):
        if math.isfinite(served_s):
            assert passed(float(served_s)) == pytest.approx(time_s, abs=1e-6)
        else:
            assert time_s >= passed(100.0) - 1e-9
