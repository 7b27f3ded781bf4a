"""Limits: the PID multiplier by hand, what it charges, and a toy that ends at the limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback

from tests.timed_toys import SCALE, Toy, chance_of_second, trained
from train.algorithms.lagrangian import MOST, REQUEST_TOKENS, Gains, Limits, Multiplier
from train.algorithms.timing import TimedSteps

LIMIT = 0.3


def updated(*excesses: float, gains: Gains | None = None) -> Multiplier:
    multiplier = Multiplier()
    for excess in excesses:
        multiplier.update(excess, gains or Gains(0.5, 0.1, 2.0))
    return multiplier


def test_a_multiplier_is_the_sum_of_its_three_terms() -> None:
    assert updated(0.2).value == pytest.approx(0.5 * 0.2 + 0.1 * 0.2)
    # What rises is feared, what falls is not hoped for.
    assert updated(0.2, 0.5).value == pytest.approx(0.5 * 0.5 + 0.1 * 0.7 + 2.0 * 0.3)
    assert updated(0.5, 0.2).value == pytest.approx(0.5 * 0.2 + 0.1 * 0.7)
    assert updated(-0.5).value == 0.0
    smoothed = updated(0.2, 0.5, gains=Gains(1.0, 0.0, 0.0, 0.75))
    assert smoothed.value == pytest.approx(0.75 * 0.2 + 0.25 * 0.5)


def test_the_integral_never_winds_up() -> None:
    long_kept = updated(*[-1.0] * 50, 0.2)
    assert long_kept.integral == pytest.approx(0.2)
    gains = Gains(0.0, 2.0, 0.0)
    long_broken = updated(*[1.0] * 500, gains=gains)
    assert long_broken.value == MOST
    long_broken.update(-1.0, gains)
    assert long_broken.value == pytest.approx(MOST - 2.0)


def made(limits: Limits) -> Any:
    """The callback before a model, as Stable-Baselines3 sets it up; what it logs is forgotten."""
    model = SimpleNamespace(
        logger=SimpleNamespace(record=lambda *_: None), get_env=lambda: None, num_timesteps=0
    )
    limits.init_callback(model)  # type: ignore[arg-type]
    return model


INFOS = [
    {"missed": 1, "finished": 4, "energy_joules": 30.0, "elapsed_s": 0.2, "waiting": 0.5},
    {"missed": 0, "finished": 1, "energy_joules": 10.0, "elapsed_s": 0.4, "waiting": 0.0},
]


@pytest.mark.parametrize("scaling", [True, False])
def test_steps_are_charged_what_exceeds_the_limits(scaling: bool) -> None:
    limits = Limits({"violations": 0.2, "power": 50.0, "waiting": 0.25}, 0.1, 16, scaling=scaling)
    made(limits)
    for name, value in (("violations", 0.5), ("power", 1.0), ("waiting", 2.0)):
        limits.multipliers[name].value = value
    rewards = np.array([3.0, 1.0])
    limits.on_rollout_start()
    limits.locals = {"infos": INFOS, "rewards": rewards}
    assert limits._on_step()
    request = 0.5 * REQUEST_TOKENS / 16
    wanted = [
        3.0 - request * (1 - 0.2 * 4) - (30 / 50 - 0.2) / 0.1 - 2 * 0.2 * (0.5 - 0.25) / 0.1,
        1.0 - request * (0 - 0.2 * 1) - (10 / 50 - 0.4) / 0.1 - 2 * 0.4 * (0.0 - 0.25) / 0.1,
    ]
    np.testing.assert_allclose(rewards, np.array(wanted) / (4.5 if scaling else 1.0))


def test_rates_of_a_rollout_move_the_multipliers_and_are_carried_on() -> None:
    limits = Limits({"violations": 0.1, "waiting": 0.3}, 0.1, 16)
    model = made(limits)
    limits.on_rollout_start()
    limits.locals = {"infos": INFOS, "rewards": np.zeros(2)}
    limits._on_step()
    limits._on_rollout_end()
    assert limits.multipliers["violations"].excess == pytest.approx(1 / 5 - 0.1)
    assert limits.multipliers["waiting"].excess == pytest.approx(0.1 / 0.6 - 0.3)
    limits.keep()
    other = Limits({"violations": 0.1, "power": 9.0}, 0.1, 16)
    other.init_callback(model)
    assert other.multipliers["violations"] == limits.multipliers["violations"]
    assert other.multipliers["power"] == Multiplier()


def test_where_no_request_ended_nothing_is_known() -> None:
    limits = Limits({"violations": 0.1}, 0.1, 16)
    made(limits)
    limits.multipliers["violations"].value = 0.7
    limits.on_rollout_start()
    limits._on_rollout_end()
    assert limits.multipliers["violations"].value == 0.7


class LimitedToy(Toy):
    """The second action pays more, and every request that it ends is missed."""

    def step(self, action: Any) -> Any:
        *told, info = super().step(action)
        missed = float(told[1] == max(self.pays))
        return *told, info | {"missed": missed, "finished": 1.0}


class Chances(BaseCallback):
    """How likely the second action was, rollout by rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.seen.append(chance_of_second(self.model))


def chances(name: str, rollouts: int, *limits: BaseCallback) -> list[float]:
    """Of the second action, by rollout of 64 decisions."""
    seen, changes = Chances(), {"n_steps": 8, "n_epochs": 4, "learning_rate": 3e-3}
    callbacks = [*limits, TimedSteps(SCALE), seen]
    count = 64 * rollouts
    trained(name, [0.5, 1.0], [1.0, 1.0], 100, 0.5, count, callbacks, LimitedToy, **changes)
    return seen.seen


def test_a_policy_ends_at_the_limits_mixture() -> None:
    seen = chances("ppo", 40, Limits({"violations": LIMIT}, 1.0, 16, Gains(1.0, 0.05, 0.5)))
    assert seen[0] == pytest.approx(0.5, abs=0.05)
    assert np.mean(seen[-12:]) == pytest.approx(LIMIT, abs=0.05)
    assert abs(seen[-1] - LIMIT) < 0.1


def test_without_a_limit_it_is_broken() -> None:
    assert chances("ppo", 24)[-1] > 2 * LIMIT
