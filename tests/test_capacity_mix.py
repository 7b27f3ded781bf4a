"""Capacity follows the mix: whose prompts a workload brings says how many requests are a load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES
from engine.drawing import Drawing
from engine.errors import UserError
from engine.tiny import tiny_server
from engine.workload import (
    Peak,
    PromptSet,
    Regime,
    Shifts,
    WorkloadConfig,
    class_shares,
    draw_arrivals,
    workload,
)

CODING, CHAT, SUMMARIZATION = range(3)
LONG = PromptSet(
    "long", {"coding": ("a" * 10,), "chat": ("b" * 20, "c" * 40), "summarization": ("d" * 90,)}
)
MEANS = np.array([10.0, 30.0, 90.0])
STATED = WorkloadConfig(load=1.0, mix={"coding": 3.0, "chat": 1.0}, duration_s=100.0)
REGIMES = (Regime(60.0, 0.5, {"chat": 1.0}), Regime(60.0, 1.5, {"coding": 1.0, "chat": 1.0}))


def test_the_table_has_the_classes_in_this_order() -> None:
    assert DEFAULT_CLASSES.names == ("coding", "chat", "summarization")


@pytest.mark.parametrize(
    ("config", "shares"),
    [
        (WorkloadConfig(load=1.0), [1 / 3, 1 / 3, 1 / 3]),
        (STATED, [0.75, 0.25, 0.0]),
        (WorkloadConfig(shifts=Shifts(), mix={"chat": 2.0, "coding": 2.0}), [0.5, 0.5, 0.0]),
        # 60 s at 0.5 of chat, 40 s (cut at 100) at 1.5 of both: 30 + 30 of chat, 30 of coding.
        (WorkloadConfig(regimes=REGIMES, duration_s=100.0), [1 / 3, 2 / 3, 0.0]),
        (WorkloadConfig(regimes=REGIMES, duration_s=60.0), [0.0, 1.0, 0.0]),
    ],
)
def test_shares_by_hand(config: WorkloadConfig, shares: list[float]) -> None:
    assert class_shares(config, DEFAULT_CLASSES) == pytest.approx(shares)


@pytest.mark.parametrize(
    "config",
    [
        STATED,
        WorkloadConfig(regimes=REGIMES, duration_s=100.0),
        workload("three-peaks"),
        WorkloadConfig(load=1.0, peaks={"chat": Peak(0.0, 0.1), "coding": Peak(0.5, 0.1, 3.0)}),
    ],
)
def test_shares_are_those_of_what_is_drawn(config: WorkloadConfig) -> None:
    arrivals = draw_arrivals(config, DEFAULT_CLASSES, 100.0, np.random.default_rng(0))
    drawn = np.bincount(arrivals.slo_class, minlength=3) / len(arrivals.slo_class)
    assert class_shares(config, DEFAULT_CLASSES) == pytest.approx(drawn, abs=0.03)


def test_a_trace_has_its_own_classes(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = "".join(f"{i},5,5,{'code' if i % 4 else 'chat'}\n" for i in range(40))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,class\n{rows}")
    config = workload(path)
    assert config.trace is not None
    trace = replace(config.trace, classes={"code": "coding"})
    shares = class_shares(replace(config, trace=trace), DEFAULT_CLASSES, trace.load())
    assert shares.tolist() == [0.75, 0.25, 0.0]


@pytest.mark.parametrize(
    "config", [STATED, WorkloadConfig(regimes=REGIMES, duration_s=100.0), workload("three-peaks")]
)
def test_capacity_is_of_the_mean_prompt_under_the_mix(config: WorkloadConfig) -> None:
    server = tiny_server()
    config = replace(config, max_tokens=20)
    drawing = Drawing(server, config, LONG)
    mean = float(class_shares(config, DEFAULT_CLASSES) @ MEANS)
    assert drawing.capacity_rps == pytest.approx(server.capacity_rps(mean, 15.0))
    assert drawing.capacity_rps != pytest.approx(server.capacity_rps(float(MEANS.mean()), 15.0))


def test_a_regimes_class_without_prompts_is_told_at_once() -> None:
    config = WorkloadConfig(regimes=REGIMES, duration_s=100.0, max_tokens=20)
    with pytest.raises(UserError, match="no prompts of the class 'coding'"):
        Drawing(tiny_server(), config, PromptSet("chat only", {"chat": ("x",)}))
    Drawing(tiny_server(), replace(config, duration_s=60.0), PromptSet("", {"chat": ("x",)}))


def test_a_long_prompt_of_a_regimes_own_class_is_told_at_once() -> None:
    config = WorkloadConfig(
        mix={"chat": 1.0}, regimes=(Regime(9.0, 1.0, {"summarization": 1.0}),), duration_s=9.0,
        max_tokens=150,
    )  # fmt: skip
    with pytest.raises(UserError, match="prompts of up to 90 tokens and max_tokens of 150 exceed"):
        Drawing(tiny_server(), config, LONG)
