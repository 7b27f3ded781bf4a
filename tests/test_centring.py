"""Centred rewards: the same policy, values around 0, and a rate that is carried on."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback

from tests.timed_toys import SCALE, SPACE, chance_of_second, trained, value
from train.algorithms.centring import MEMORY_S, Centring
from train.algorithms.timing import TimedReplayBuffer, TimedSteps, discounted_s


def test_discounted_seconds_are_the_integral() -> None:
    gamma, elapsed_s = 0.9, np.array([0.1, 1.0, 10.0])
    middles_s = (np.arange(10_000) + 0.5) / 10_000 * elapsed_s[:, None]
    fine = (gamma**middles_s).mean(axis=1) * elapsed_s
    np.testing.assert_allclose(discounted_s(elapsed_s, gamma), fine, rtol=1e-6)
    np.testing.assert_array_equal(discounted_s(elapsed_s, 1.0), elapsed_s)


GAMMA, PAYS, LASTS = 0.9, [1.0, 8.0], [1.0, 10.0]
# A discounted second brings more by the long step: 8 / 6.2 to 1 / 0.95.
RATE = 8.0 / float(discounted_s(np.array([10.0]), GAMMA)[0])


def learned(name: str, decisions: int, *before: BaseCallback) -> Any:
    callbacks = [*before, TimedSteps(SCALE)]
    return trained(name, PAYS, LASTS, 100, GAMMA, decisions, callbacks)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_centred_policy_is_the_same_and_its_values_are_near_0(name: str) -> None:
    centring = Centring(SCALE)
    model = learned(name, 1280, centring)
    assert chance_of_second(model) > 0.95
    assert centring.rate == pytest.approx(RATE, rel=0.05)
    assert abs(value(model)) < 0.1


def test_values_not_centred_are_not_near_0() -> None:
    model = learned("ppo", 1280)
    assert chance_of_second(model) > 0.95
    assert value(model) > 0.9  # 1.23 in the end


class AsTimePasses(Centring):
    """Charges seconds without discount."""

    def _on_step(self) -> bool:
        rewards, rate = self.locals["rewards"].copy(), self.rate
        going = super()._on_step()
        elapsed_s = np.array([info["elapsed_s"] for info in self.locals["infos"]])
        self.locals["rewards"][:] = rewards - rate * elapsed_s
        return going


def test_seconds_charged_without_discount_would_change_the_policy() -> None:
    assert chance_of_second(learned("ppo", 1280, AsTimePasses(SCALE))) < 0.5


def test_the_rate_forgets_slowly_and_is_carried_on() -> None:
    centring, elapsed_s = Centring(), MEMORY_S / 2
    model: Any = SimpleNamespace(
        gamma=1.0, logger=SimpleNamespace(record=lambda *_: None), get_env=lambda: None
    )
    centring.init_callback(model)
    for pays in (2.0, 5.0):
        rewards = np.full(2, pays * elapsed_s)
        centring.on_rollout_start()
        before = centring.rate
        centring.locals = {"infos": [{"elapsed_s": elapsed_s}] * 2, "rewards": rewards}
        centring._on_step()
        np.testing.assert_allclose(rewards, (pays - before) * elapsed_s)
        centring._on_rollout_end()
    kept = math.exp(-0.5)
    assert centring.rate == pytest.approx((2.0 * kept + 5.0) / (kept + 1.0))
    centring.keep()
    again = Centring()
    again.init_callback(model)
    assert again.rate == centring.rate


def test_samples_of_a_replay_buffer_are_centred_at_the_present_rate() -> None:
    buffer = TimedReplayBuffer(4, SPACE, spaces.Discrete(2), device="cpu")
    buffer.gamma = 0.5
    row = np.zeros((1, 1))
    buffer.add(row, row, np.array([1]), np.array([3.0]), np.array([False]), [{"elapsed_s": 2.0}])
    assert buffer.sample(1).rewards.item() == 3.0
    buffer.reward_rate = 0.7
    charged = 0.7 * 0.75 / math.log(2.0)
    assert buffer.sample(1).rewards.item() == pytest.approx(3.0 - charged)
