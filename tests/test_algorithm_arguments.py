"""Hyper-parameters: the YAML files that ship, `--set` over them, and what is said of bad ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from policies.actions import ActionTable, sized_tiers
from train.algorithms.arguments import FOLDER, NETWORK, arguments_of
from train.algorithms.registry import ALGORITHMS
from train.algorithms.values import read_assignment
from train.config import Learning, Serving, TrainConfig


def config(name: str = "ppo", *assignments: str, backend: Any = "replay") -> TrainConfig:
    return TrainConfig(Learning(policy=name, set=assignments), Serving(backend=backend))


def test_every_algorithm_has_a_file_and_every_file_an_algorithm() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(ALGORITHMS)


@pytest.mark.parametrize("backend", ["replay", "live"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_files_hold_what_may_be_set(name: str, backend: Any) -> None:
    """Every value of a file passes as `--set KEY=VALUE`, so keys and kinds are right."""
    values = dict(arguments_of(config(name, backend=backend)).values)
    network = values.pop(NETWORK)
    pairs = [*values.items(), *((f"{NETWORK}.{key}", value) for key, value in network.items())]
    words = [
        f"{key}={yaml.safe_dump(value, default_flow_style=True).strip()}" for key, value in pairs
    ]
    words = [word.removesuffix("...").strip() for word in words]
    again = arguments_of(config(name, *words, backend=backend))
    assert again.values == arguments_of(config(name, backend=backend)).values


def test_ppo_is_what_it_was() -> None:
    given = arguments_of(config())
    assert given.n_envs == 32 and given.network() == {"net_arch": [64, 64]}
    expected = {
        "n_steps": 32, "batch_size": 1024, "n_epochs": 8, "learning_rate": 1e-3,
        "ent_coef": 0.003, "gae_lambda": 0.95,
    }  # fmt: skip
    assert given.of(32) == expected
    assert given.of(1) == expected | {"batch_size": 32}
    assert arguments_of(config(backend="live")).of(1) == expected | {"batch_size": 32}


def test_assignments_stand_over_the_file() -> None:
    words = ("n_steps=64", "learning_rate=3e-4", f"{NETWORK}.net_arch=[32, 16]", "target_kl=0.02")
    values = arguments_of(config("ppo", *words, f"{NETWORK}.activation_fn=relu")).values
    assert values["n_steps"] == 64 and values["learning_rate"] == 3e-4
    assert values[NETWORK] == {"net_arch": [32, 16], "activation_fn": "relu"}
    assert values["target_kl"] == 0.02 and values["n_epochs"] == 8
    schedule = arguments_of(config("ppo", "learning_rate=lin_0.002")).of(32)["learning_rate"]
    assert [schedule(left) for left in (1.0, 0.5, 0.0)] == [0.002, 0.001, 0.0]
    assert arguments_of(config("dqn", "max_grad_norm=0.5")).values["max_grad_norm"] == 0.5


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=3e-4", 3e-4), ("a=1", 1), ("a=-2.5E+3", -2500.0), ("a=true", True), ("a=x=y", "x=y"),
     ("a=[1, 2]", [1, 2]), ("a=auto_0.1", "auto_0.1"), ("a=null", None)],
)  # fmt: skip
def test_values_are_read_as_yaml(text: str, value: Any) -> None:
    found = read_assignment(text)
    assert found == ("a", value) and type(found[1]) is type(value)


@pytest.mark.parametrize(
    ("name", "word", "says"),
    [
        ("ppo", "n_step=64", "ppo has no setting of that name; did you mean n_steps?"),
        ("ppo", "n_steps", "expected KEY=VALUE"),
        ("ppo", "n_steps=[1", "the value is no YAML"),
        ("ppo", "n_steps=many", "n_steps=many: expected a whole number from 1 up"),
        ("ppo", "n_epochs=0", "expected a whole number from 1 up"),
        ("ppo", "learning_rate=fast", "expected a number above 0"),
        ("ppo", "learning_rate=lin_-1", "expected a number above 0"),
        ("ppo", "ent_coef=auto", "expected a number of at least 0"),
        ("ppo", "gamma=0.9", "give --half-life-s"),
        ("ppo", "seed=1", "give --seed"),
        ("ppo", "rollout_buffer_class=x", "no setting of that name"),
        ("ppo", "n_steps=50", "a rollout of 32 engines has 1600 decisions"),
        ("ppo", "presets=global", "no setting of that name"),
        ("ppo", f"{NETWORK}.net_arch=64", "expected widths of hidden layers"),
        ("ppo", f"{NETWORK}.activation_fn=gelu", "expected tanh or relu"),
        ("ppo", f"{NETWORK}.n_lstm_layers=2", "no setting of that name"),
        ("dqn", "presets=all", "expected strict-and-rest or global"),
        ("dqn", "n_steps=3", "no setting of that name"),
        ("dqn", "gradient_steps=0", "expected a whole number from 1 up"),
        ("dqn", "exploration_fraction=0", "expected a number above 0"),
        ("sac", "ent_coef=much", "expected a number, auto, or auto_0.1"),
        ("sac", "use_sde=true", "no setting of that name"),
        ("a2c", "normalize_advantage=2", "expected true or false"),
    ],
)
def test_bad_assignments_are_one_sentence(name: str, word: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        config(name, word).check()
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_there_is_at_least_one_engine() -> None:
    config("ppo", "n_envs=2", backend="live").check()
    with pytest.raises(UserError, match="n_envs=0: expected a whole number from 1 up"):
        config("ppo", "n_envs=0", backend="live").check()


def test_presets_are_by_strictness_or_for_all() -> None:
    table = ActionTable(DEFAULT_CLASSES.names)
    strict = config("dqn", "presets=strict-and-rest")
    apart: Any = arguments_of(strict).codec(table, DEFAULT_CLASSES)
    assert apart.groups == (("coding",), ("chat", "summarization")) and apart.outputs == 256
    alike: Any = arguments_of(config("dqn")).codec(table, DEFAULT_CLASSES)
    assert alike.groups == (DEFAULT_CLASSES.names,)
    with pytest.raises(UserError, match="presets=global, or --actions tiers"):
        arguments_of(strict).codec(sized_tiers(DEFAULT_CLASSES.names), DEFAULT_CLASSES)


def test_a_run_goes_on_with_its_own_file(tmp_path: Path) -> None:
    first = arguments_of(config("ppo", "n_steps=64", f"{NETWORK}.net_arch=[8]"))
    (tmp_path / "hyperparameters.yaml").write_text(first.as_yaml(), encoding="utf-8")
    resumed = replace(config("ppo", "learning_rate=5e-4"), resume=tmp_path)
    values = arguments_of(resumed).values
    assert values == {**first.values, "learning_rate": 5e-4}
    with pytest.raises(UserError, match=r"--policy a2c: .* is a run of another algorithm"):
        arguments_of(replace(config("a2c"), resume=tmp_path))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ppo", f"{NETWORK}.net_arch=[9]"),
        ("ppo", f"{NETWORK}.activation_fn=relu"),
        ("dqn", "presets=strict-and-rest"),
        ("dqn", "n_envs=8"),
        ("sac", "ent_coef=0.1"),
    ],
)
def test_what_a_saved_model_is_made_of_stays(name: str, word: str, tmp_path: Path) -> None:
    first = arguments_of(config(name))
    (tmp_path / "hyperparameters.yaml").write_text(first.as_yaml(), encoding="utf-8")
    arguments_of(config(name, word))
    with pytest.raises(UserError, match="a run that is taken up keeps its"):
        arguments_of(replace(config(name, word), resume=tmp_path))
    same = arguments_of(replace(config(name, f"{NETWORK}.net_arch=[64, 64]"), resume=tmp_path))
    assert same.values == first.values
