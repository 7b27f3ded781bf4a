"""Workloads: one seed gives one list, rates, mixes and lengths are kept.

What bad input is told is tested in `test_workload_input`.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.request import Request
from engine.workload import (
    PRESETS,
    PromptSet,
    Regime,
    Shifts,
    WorkloadConfig,
    build_episode,
    draw_spans,
    workload,
)
from engine.workload.arrivals import arrival_times

NAMES = DEFAULT_CLASSES.names
STOP = frozenset({0})
SMALL = PromptSet("small", {name: (f"{name} a", f"{name} bc", f"{name} def") for name in NAMES})


def encode(text: str) -> list[int]:
    return [ord(c) % 60 + 1 for c in text]


def build(
    config: WorkloadConfig, seed: int = 0, prompts: PromptSet = SMALL, capacity_rps: float = 2.0
) -> list[Request]:
    generator = np.random.default_rng(seed)
    return build_episode(
        config, prompts, encode, capacity_rps, DEFAULT_CLASSES, STOP, generator
    ).requests


def shares(requests: list[Request]) -> list[float]:
    return [sum(r.slo_class == c for r in requests) / len(requests) for c in range(len(NAMES))]


@pytest.mark.parametrize("name", PRESETS)
def test_same_seed_same_requests(name: str) -> None:
    config = workload(name)
    assert build(config, seed=3) == build(config, seed=3)
    assert build(config, seed=3) != build(config, seed=4)


def test_lengths_and_prompts_leave_arrivals_alone() -> None:
    config = workload("shifting")
    one_text = PromptSet("other", {name: ("x",) for name in NAMES})
    other = build(replace(config, max_tokens=7), prompts=one_text)
    expected = [(r.arrival_s, r.slo_class) for r in build(config)]
    assert [(r.arrival_s, r.slo_class) for r in other] == expected


@pytest.mark.parametrize("cv", [0.3, 1.0, 4.0])
def test_rate_and_burstiness(cv: float) -> None:
    config = WorkloadConfig(rate_rps=5.0, duration_s=4000.0, cv=cv)
    times = np.array([r.arrival_s for r in build(config)])
    assert len(times) == pytest.approx(20_000, rel=0.12)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.12)


def test_bursty_arrivals_do_not_exceed_the_rate_of_a_short_workload() -> None:
    config = WorkloadConfig(rate_rps=1.0, duration_s=20.0, cv=5.0)
    spans = draw_spans(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    generator = np.random.default_rng(1)
    counts = [len(arrival_times(spans, config.cv, generator)) for _ in range(3000)]
    assert np.mean(counts) == pytest.approx(20.0, rel=0.15)  # 32 if the first gap were ordinary


def test_load_is_a_multiple_of_capacity() -> None:
    requests = build(workload("overload", duration_s=2000.0), capacity_rps=4.0)
    assert len(requests) == pytest.approx(1.5 * 4.0 * 2000.0, rel=0.05)


def test_default_mix_is_every_class_alike() -> None:
    assert shares(build(workload("steady", duration_s=5000.0))) == pytest.approx(
        [1 / 3] * 3, abs=0.03
    )


def test_a_class_of_weight_zero_needs_no_prompts() -> None:
    config = WorkloadConfig(load=1.0, duration_s=500.0, mix={"coding": 3, "chat": 1})
    only_two = PromptSet("two", {name: SMALL.by_class[name] for name in ("coding", "chat")})
    assert shares(build(config, prompts=only_two)) == pytest.approx([0.75, 0.25, 0.0], abs=0.06)


def test_regimes_switch_load_and_mix_at_the_change_point() -> None:
    regimes = (Regime(500.0, 0.5, {"coding": 1.0}), Regime(500.0, 2.0, {"summarization": 1.0}))
    requests = build(WorkloadConfig(regimes=regimes, duration_s=900.0))
    early = [r for r in requests if r.arrival_s < 500.0]
    late = [r for r in requests if r.arrival_s >= 500.0]
    assert {r.slo_class for r in early} == {0}
    assert {r.slo_class for r in late} == {2}
    assert len(early) == pytest.approx(500, rel=0.15)
    assert len(late) == pytest.approx(1600, rel=0.15)


def test_shifting_draws_regimes_as_designed() -> None:
    config = workload("shifting")
    spans = [
        span
        for seed in range(200)
        for span in draw_spans(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(seed))
    ]
    lengths = np.array([s.end_s - s.start_s for s in spans if s.end_s < config.duration_s])
    loads = np.array([s.rate_rps for s in spans])
    weights = np.array([s.weights for s in spans])
    assert lengths.min() >= 30.0 - 1e-9 and lengths.max() <= 90.0 + 1e-9
    assert loads.min() >= 0.5 and loads.max() <= 1.2
    assert loads.mean() == pytest.approx(0.85, abs=0.03)
    assert weights.mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.03)
    assert weights.std() == pytest.approx(np.sqrt(1 / 18), rel=0.1)  # Dirichlet(1, 1, 1)


def test_spans_of_a_seed_are_those_of_its_requests() -> None:
    config = WorkloadConfig(shifts=Shifts(load=(0.001, 1.2)), duration_s=3000.0)
    spans = draw_spans(config, DEFAULT_CLASSES, 5.0, np.random.default_rng(8))
    assert spans[0].start_s == 0.0 and spans[-1].end_s == 3000.0
    times = np.array([r.arrival_s for r in build(config, seed=8, capacity_rps=5.0)])
    expected = np.array([(s.end_s - s.start_s) * s.rate_rps for s in spans])
    counts = np.array([((times >= s.start_s) & (times < s.end_s)).sum() for s in spans])
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected) + 5)


def test_prompts_do_not_repeat_at_once_and_all_appear() -> None:
    requests = build(WorkloadConfig(load=1.0, duration_s=400.0))
    for c, name in enumerate(NAMES):
        texts = [r.prompt for r in requests if r.slo_class == c]
        assert all(a != b for a, b in pairwise(texts))
        assert {tuple(t) for t in texts} == {tuple(encode(t)) for t in SMALL.by_class[name]}


def test_output_caps_fill_the_upper_half() -> None:
    caps = {r.max_tokens for r in build(WorkloadConfig(load=1.0, duration_s=900.0, max_tokens=9))}
    assert caps == {5, 6, 7, 8, 9}


def test_requests_share_no_prompt_list() -> None:
    requests = build(WorkloadConfig(load=1.0, duration_s=200.0))
    assert len({id(r.prompt) for r in requests}) == len(requests)
    assert {r.stop_ids for r in requests} == {STOP}


def test_long_prompt_is_refused_or_cut_inside_the_template() -> None:
    long = PromptSet("long", {name: ("abcdefghij" * 5,) for name in NAMES})
    config = WorkloadConfig(load=1.0, duration_s=50.0, prompt_tokens=12)

    def templated(text: str) -> list[int]:
        return [61, *encode(text), 62]

    def built(chosen: WorkloadConfig) -> list[Request]:
        return build_episode(
            chosen, long, templated, 2.0, DEFAULT_CLASSES, STOP, np.random.default_rng(0)
        ).requests

    with pytest.raises(UserError, match="52 tokens and prompt_tokens allows 12"):
        built(config)
    expected = templated("abcdefghij")
    assert all(r.prompt == expected for r in built(replace(config, truncate=True)))
    with pytest.raises(UserError, match="not one character"):
        built(replace(config, truncate=True, prompt_tokens=2))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    load=st.floats(0.01, 3.0),
    duration_s=st.floats(0.1, 60.0),
    cv=st.floats(0.1, 5.0),
    mix=st.fixed_dictionaries({name: st.floats(0.0, 1.0) for name in NAMES}).filter(
        lambda m: sum(m.values()) > 0
    ),
    max_tokens=st.integers(1, 100),
    shape=st.sampled_from(["load", "regimes", "shifts"]),
)
def test_requests_are_well_formed(
    seed: int,
    load: float,
    duration_s: float,
    cv: float,
    mix: dict[str, float],
    max_tokens: int,
    shape: str,
) -> None:
    speeds: dict[str, dict[str, Any]] = {
        "load": {"load": load},
        "regimes": {"regimes": (Regime(duration_s / 2, load), Regime(duration_s, load, mix))},
        "shifts": {"shifts": Shifts((1.0, 5.0), (load, load + 1))},
    }
    config = WorkloadConfig(
        duration_s=duration_s,
        cv=cv,
        mix=mix,
        max_tokens=max_tokens,
        prompt_tokens=20,
        **speeds[shape],
    )
    requests = build(config, seed=seed)
    times = [r.arrival_s for r in requests]
    assert [r.id for r in requests] == list(range(len(requests)))
    assert times == sorted(times)
    assert all(0.0 <= t < duration_s for t in times)
    assert all(mix[NAMES[r.slo_class]] > 0 for r in requests)
    assert all(max_tokens / 2 <= r.max_tokens <= max_tokens for r in requests)
    for request in requests:
        request.check(20 + max_tokens)
