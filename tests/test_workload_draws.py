"""What a seed decides: arrival processes, peaks, the shifting drift, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.classes import DEFAULT_CLASSES
from engine.drawing import Drawing
from engine.errors import UserError
from engine.profile.fallback import WithoutProfile
from engine.tiny import tiny_server
from engine.workload import (
    Arrivals,
    Peak,
    PromptSet,
    Shifts,
    WorkloadConfig,
    config_from_table,
    draw_arrivals,
    draw_spans,
    workload,
)
from engine.workload.arrivals import aside
from engine.workload.describe import cv_of_gaps
from engine.workload.renewal import Gaps, marks_until, weibull_shape
from tests.workload_digests import digest, digests, everything

ROOT = Path(__file__).resolve().parents[1]
NAMES = DEFAULT_CLASSES.names
SMALL = PromptSet("small", {name: (f"{name} a b", f"{name} c d e") for name in NAMES})


def drawn(config: WorkloadConfig, seed: int = 0, capacity_rps: float = 1.0) -> Arrivals:
    return draw_arrivals(config, DEFAULT_CLASSES, capacity_rps, np.random.default_rng(seed))


# -- processes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_weibull_arrivals_have_their_rate_and_burstiness(cv: float) -> None:
    config = WorkloadConfig(rate_rps=5.0, duration_s=4000.0, cv=cv, process="weibull")
    times = drawn(config).arrival_s
    assert len(times) == pytest.approx(20_000, rel=0.1)
    assert cv_of_gaps(times) == pytest.approx(cv, rel=0.12)
    gamma = drawn(replace(config, process="gamma")).arrival_s
    assert (gamma.tolist() == times.tolist()) is False


def test_poisson_is_gamma_with_cv_one() -> None:
    config = WorkloadConfig(rate_rps=5.0, duration_s=100.0)
    poisson = replace(config, process="poisson")
    assert drawn(poisson).arrival_s.tolist() == drawn(config).arrival_s.tolist()
    with pytest.raises(UserError, match="poisson process with cv = 2"):
        replace(poisson, cv=2.0)
    with pytest.raises(UserError, match="process is 'poison'; nearest is 'poisson'"):
        config_from_table({"load": 1.0, "process": "poison"})


@settings(max_examples=40)
@given(cv=st.floats(0.01, 20.0))
def test_weibull_shape_solves_its_equation(cv: float) -> None:
    from math import expm1, lgamma

    k = weibull_shape(cv)
    squared = expm1(lgamma(1 + 2 / k) - 2 * lgamma(1 + 1 / k))
    assert squared**0.5 == pytest.approx(cv, rel=1e-6)


@pytest.mark.parametrize("gaps", [Gaps(0.1), Gaps.of_cv(3.0, "weibull"), Gaps(4.0)])
def test_the_first_gap_is_the_equilibrium_one(gaps: Gaps) -> None:
    generator = np.random.default_rng(0)
    counts = [len(marks_until(3.0, gaps, generator)) for _ in range(6000)]
    assert np.mean(counts) == pytest.approx(3.0, rel=0.1)


# -- peaks -----------------------------------------------------------------------------------------


def test_peaks_follow_the_duration_and_keep_the_mean_load() -> None:
    config = workload("three-peaks", load=2.0)
    for duration_s in (360.0, 90.0):
        arrivals = drawn(replace(config, duration_s=duration_s), capacity_rps=10.0)
        assert len(arrivals.arrival_s) == pytest.approx(20.0 * duration_s, rel=0.1)
        means = [arrivals.arrival_s[arrivals.slo_class == c].mean() for c in range(3)]
        shares = np.array(means) / duration_s
        order = [NAMES.index(name) for name in ("chat", "coding", "summarization")]
        assert shares[order] == pytest.approx([0.26, 0.5, 0.74], abs=0.04)
    spans = draw_spans(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    rates = np.array([span.rate_rps for span in spans])
    assert rates.mean() == pytest.approx(2.0) and rates.max() == pytest.approx(2.8, rel=0.03)


def test_peaks_from_a_table_and_bad_ones() -> None:
    table = {"load": 1.0, "peaks": {"chat": {"at": 0.2, "width": 0.001, "height": 2}}}
    assert config_from_table(table).peaks == {"chat": Peak(0.2, 0.001, 2)}
    times = drawn(config_from_table(table | {"duration_s": 1000.0})).arrival_s
    assert times.min() > 190.0 and times.max() < 210.0
    for changes, message in (
        ({"mix": {"chat": 1.0}}, "both mix and peaks"),
        ({"peaks": {"chat": {"at": 2, "width": 1}}}, "peak chat: a peak's at is 2"),
        ({"peaks": {"chat": {"at": 0.2}}}, "peak chat: the key 'width' is missing"),
        ({"peaks": 3}, "peaks is 3"),
        ({"load": None, "shifts": {}}, "peaks need load or rate_rps"),
    ):
        with pytest.raises(UserError, match=message):
            config_from_table(table | changes)
    with pytest.raises(UserError, match="peaks names the class 'x'"):
        drawn(WorkloadConfig(load=1.0, peaks={"x": Peak(0.5, 0.1)}))


# -- the shifting preset ---------------------------------------------------------------------------


def test_shifting_is_as_designed() -> None:
    config = workload("shifting")
    assert config.duration_s == 600.0
    assert config.shifts == Shifts((30.0, 90.0), (0.5, 1.2), 1.0, (0.7, 1.1), 2.0, 0.2)
    spans = [
        span
        for seed in range(200)
        for span in draw_spans(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(seed))
    ]
    acceptance = np.array([span.acceptance for span in spans])
    draft_time = np.array([span.draft_time for span in spans])
    assert acceptance.min() >= 0.7 and acceptance.max() <= 1.1
    assert acceptance.mean() == pytest.approx(0.9, abs=0.01)
    assert acceptance.std() == pytest.approx(0.4 / 12**0.5, rel=0.05)
    assert set(draft_time.tolist()) == {1.0, 2.0}
    assert (draft_time == 2.0).mean() == pytest.approx(0.2, abs=0.03)
    loads = np.array([span.rate_rps for span in spans])
    for drift in (acceptance, draft_time):  # drawn independently of each other
        assert abs(np.corrcoef(loads, drift)[0, 1]) < 0.08


def test_the_drift_of_an_episode_is_that_of_its_spans() -> None:
    config = workload("shifting")
    arrivals = drawn(config, 7)
    spans = draw_spans(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(7))
    assert [(s.start_s, s.acceptance) for s in spans] == [
        (s.start_s, s.acceptance) for s in arrivals.spans
    ]
    for span in spans:
        middle_s = (span.start_s + span.end_s) / 2
        assert arrivals.disturbances.value("acceptance", middle_s) == span.acceptance
        assert arrivals.disturbances.value("draft_time", middle_s) == span.draft_time


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_drift_leaves_the_arrivals_of_a_seed_alone(seed: int) -> None:
    config = workload("shifting")
    plain = replace(config, shifts=Shifts())
    drifting, steady = drawn(config, seed), drawn(plain, seed)
    assert drifting.arrival_s.tolist() == steady.arrival_s.tolist()
    assert drifting.slo_class.tolist() == steady.slo_class.tolist()


def test_a_generator_aside_does_not_advance_the_first() -> None:
    first, untouched = np.random.default_rng(3), np.random.default_rng(3)
    one, same, other = aside(first, "drift"), aside(first, "drift"), aside(first, "faults")
    assert one.random() == same.random() != other.random()
    assert first.random() == untouched.random()


# -- one seed, one episode -------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(sorted(everything())), seed=st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_episode(name: str, seed: int) -> None:
    config = everything()[name]
    assert digest(config, seed) == digest(config, seed) != digest(config, seed + 1)


def test_the_same_in_another_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.workload_digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == digests()


# -- on a server -----------------------------------------------------------------------------------


def test_a_trace_is_drawn_for_a_server_with_its_lengths_clipped(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = "".join(f"{i},{10 + 40 * (i % 5)},{3 + 30 * (i % 3)},chat\n" for i in range(60))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,class\n{rows}")
    server = tiny_server()
    config = workload(path, max_tokens=50, load=1.0)
    draw = Drawing(server, config, SMALL)
    episode = draw.episode(np.random.default_rng(0))
    assert draw(np.random.default_rng(0)) == episode.requests
    assert len(episode.requests) == 60 and episode.clipped == 24
    # 20 outputs of 63 tokens, and 4 prompts of 170 beside outputs of 33 in a context of 191.
    context = server.settings.context_tokens
    assert context == 191
    for i, request in enumerate(episode.requests):
        wanted = min(10 + 40 * (i % 5), context - request.max_tokens)
        assert 0.9 * wanted <= len(request.prompt) <= wanted
        assert request.max_tokens == min(3 + 30 * (i % 3), 50)
        request.check(context)
    mean_rate = len(episode.requests) / episode.arrivals.spans[0].end_s
    assert mean_rate == pytest.approx(draw.capacity_rps)
    records = server.engine(episode.requests[:3]).serve(WithoutProfile())
    assert len(records) == 3
