"""Workloads from files and flags: what is read, and that bad input is named in one sentence."""

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.workload import (
    PromptSet,
    Regime,
    WorkloadConfig,
    build_episode,
    config_from_table,
    workload,
)

NAMES = DEFAULT_CLASSES.names
SMALL = PromptSet("small", {name: ("a", "b") for name in NAMES})


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"load": 0}, "load is 0"),
    ({"load": -1.0}, "load is -1"),
    ({"load": float("nan")}, "load is nan"),
    ({"load": True}, "load is True"),
    ({"load": "fast"}, "load is 'fast'"),
    ({"rate_rps": 0.0}, "rate_rps is 0"),
    ({"rate_rps": float("inf")}, "rate_rps is inf"),
    ({}, "given by nothing"),
    ({"load": 1.0, "rate_rps": 1.0}, "load and rate_rps"),
    ({"load": 1.0, "shifts": {}}, "load and shifts"),
    ({"load": 1.0, "duration_s": 0}, "duration_s is 0"),
    ({"load": 1.0, "duration_s": float("nan")}, "duration_s is nan"),
    ({"load": 1.0, "cv": 0}, "cv is 0"),
    ({"load": 1.0, "max_tokens": 0}, "max_tokens is 0"),
    ({"load": 1.0, "max_tokens": 9.5}, "max_tokens is 9.5"),
    ({"load": 1.0, "prompt_tokens": -3}, "prompt_tokens is -3"),
    ({"load": 1.0, "truncate": "yes"}, "truncate is 'yes'"),
    ({"load": 1.0, "name": ""}, "name is ''"),
    ({"load": 1.0, "mix": {"chat": -1}}, "mix gives 'chat' the weight -1"),
    ({"load": 1.0, "mix": {"chat": float("nan")}}, "mix gives 'chat' the weight nan"),
    ({"load": 1.0, "mix": {"chat": 0.0}}, "mix is .*positive weight"),
    ({"load": 1.0, "mix": [1, 2]}, "mix is .*by class name"),
    ({"lod": 1.0}, "unknown key 'lod'; nearest is 'load'"),
    ({"regimes": [{"duration_s": 5, "load": 0}]}, "regime 1: a regime's load is 0"),
    ({"regimes": [{"duration_s": 5}]}, "regime 1: the key 'load' is missing"),
    ({"regimes": [{"duration_s": 5, "laod": 1}]}, "regime 1: unknown key 'laod'; .*'load'"),
    ({"regimes": [7]}, "regime 1: got 7"),
    ({"regimes": 7}, "regimes is 7"),
    ({"regimes": [{"duration_s": 5, "load": 1}], "duration_s": 6}, "last 5 s but duration_s is 6"),
    ({"shifts": {"load": [1.0, 0.5]}}, "load is .*low and then high"),
    ({"shifts": {"duration_s": 30}}, "duration_s is 30; expected two numbers"),
    ({"shifts": {"concentration": 0}}, "concentration is 0"),
    ({"shifts": {"duration_s": [1e-9, 1.0]}}, "more than 10000 regimes"),
]


@pytest.mark.parametrize(("table", "message"), BAD_FIELDS)
def test_bad_config_names_the_field(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config_from_table(table)


@pytest.mark.parametrize(
    ("config", "capacity_rps", "message"),
    [
        (WorkloadConfig(load=1.0, mix={"codng": 1.0}), 1.0, "'codng'; nearest is 'coding'"),
        (WorkloadConfig(regimes=(Regime(200.0, 1.0, {"x": 1}),)), 1.0, "class 'x'"),
        (WorkloadConfig(load=1.0), 0.0, "capacity_rps is 0"),
        (WorkloadConfig(load=1.0), float("nan"), "capacity_rps is nan"),
        (WorkloadConfig(rate_rps=1e9), 1.0, "about 1.2e\\+11 requests"),
    ],
)
def test_bad_meeting_with_a_deployment(
    config: WorkloadConfig, capacity_rps: float, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        build_episode(
            config,
            SMALL,
            lambda text: [1],
            capacity_rps,
            DEFAULT_CLASSES,
            frozenset(),
            np.random.default_rng(0),
        )


def test_prompt_that_encodes_to_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="encodes to no token"):
        build_episode(
            workload("steady"),
            SMALL,
            lambda text: [],
            1.0,
            DEFAULT_CLASSES,
            frozenset(),
            np.random.default_rng(0),
        )


def test_toml_file_with_overrides(tmp_path: Path) -> None:
    path = tmp_path / "lunch.toml"
    path.write_text(
        "max_tokens = 32\n[mix]\nchat = 1\n"
        "[[regimes]]\nduration_s = 10\nload = 0.5\n"
        "[[regimes]]\nduration_s = 20\nload = 1.1\nmix = { coding = 2, chat = 1 }\n"
    )
    config = workload(path, max_tokens=16, load=None)
    assert config.name == "lunch" and config.max_tokens == 16 and config.duration_s == 30
    assert config.regimes[1] == Regime(20, 1.1, {"coding": 2, "chat": 1})
    assert config_from_table(json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize(
    ("content", "message"),
    [("load = \n", "not valid TOML"), ("rate = 1\n", "unknown key 'rate'; nearest is 'rate_rps'")],
)
def test_bad_toml_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        workload(path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: workload("stedy"), "unknown workload 'stedy'; nearest is 'steady'"),
        (lambda: workload("no/such.toml"), "cannot read the workload file"),
        (lambda: workload("steady", tokens=1), "unknown field 'tokens'"),
        (lambda: workload("shifting", load=1.0), "load and shifts"),
        (lambda: workload("steady", load=1.0, rate_rps=1.0), "load and rate_rps"),
        (lambda: workload("steady", shifts=3), "shifts is 3"),
        (lambda: workload("steady", regimes=3), "regimes is 3"),
    ],
)
def test_bad_name_or_override(call: Callable[[], WorkloadConfig], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_load_and_rate_replace_each_other() -> None:
    assert workload("steady", rate_rps=2.0).load is None
    assert workload("steady", load=0.3).load == 0.3


def test_shipped_prompts_cover_the_default_classes() -> None:
    prompts = PromptSet.load()
    assert all(len(prompts.of(name)) >= 60 for name in NAMES)


def test_prompts_by_path(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text('{"prompt": "hi"}\n\n{"turns": ["yo", "again"]}\n')
    with gzip.open(tmp_path / "more.jsonl.gz", "wt") as file:
        file.write('{"prompt": "def", "class": "coding"}\n')
    assert PromptSet.load(tmp_path).by_class == {"chat": ("hi", "yo"), "coding": ("def",)}
    one = PromptSet.load(tmp_path / "chat.jsonl", default_class="coding")
    assert one.by_class == {"coding": ("hi", "yo")}
    with pytest.raises(UserError, match="no prompts of the class 'chat'; nearest is 'coding'"):
        one.of("chat")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "  ", "class": "a"}', "line 2 has the prompt '  '"),
        ('{"prompt": 3, "class": "a"}', "line 2 has the prompt 3"),
        ('{"turns": [], "class": "a"}', "line 2 has neither"),
        ('{"turns": [""], "class": "a"}', "line 2 has the prompt ''"),
        ('{"prompt": "x"}', "line 2 has no class"),
        ('{"prompt": "x", "class": 5}', "line 2 has the class 5"),
        ('{"prompt": "x"', "line 2 is not valid JSON"),
        ("[]", "line 2 is no JSON object"),
    ],
)
def test_bad_prompt_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "fine", "class": "a"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        PromptSet.load(path)


def test_unreadable_prompt_sources(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no prompts at"):
        PromptSet.load(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match=r"holds no \.jsonl"):
        PromptSet.load(tmp_path)
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "x"}\n' * 99)[:-9])
    with pytest.raises(UserError, match="cannot read the prompts"):
        PromptSet.load(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match="holds no prompts"):
        PromptSet.load(tmp_path / "empty.jsonl")
