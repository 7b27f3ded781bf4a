"""Discount by elapsed time: two toys that plain PPO gets wrong, and the buffer against a loop."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO

from train.timed_ppo import TimedRolloutBuffer, TimedSteps

SPACE = spaces.Box(0.0, 1.0, (1,), np.float32)


class Toy(gym.Env[np.ndarray, np.int64]):
    """One state. Action 0 pays `pays[0]` and lasts `lasts[0]` seconds, and so on."""

    observation_space = SPACE

    def __init__(self, pays: list[float], lasts: list[float], cut_after: int) -> None:
        self.action_space = spaces.Discrete(len(pays))
        self.pays, self.lasts, self.cut_after = pays, lasts, cut_after
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> Any:
        self.steps += 1
        cut = self.steps >= self.cut_after
        info = {"elapsed_s": self.lasts[int(action)]}
        return np.zeros(1, np.float32), self.pays[int(action)], False, cut, info


def learner(env: gym.Env[Any, Any], gamma: float, **changes: Any) -> PPO:
    settings: dict[str, Any] = {
        "n_steps": 256,
        "batch_size": 128,
        "learning_rate": 1e-2,
        "gamma": gamma,
        "seed": 0,
        "device": "cpu",
        "policy_kwargs": {"net_arch": [16]},
        "rollout_buffer_class": TimedRolloutBuffer,
    }
    torch.set_num_threads(1)
    return PPO("MlpPolicy", env, **(settings | changes))


def test_a_short_step_beats_a_long_one_that_pays_twice_as_much() -> None:
    # 2 in 10 s or 1 in 1 s: a constant discount a step would choose the long one.
    model = learner(Toy([2.0, 1.0], [10.0, 1.0], cut_after=100), gamma=0.9)
    model.learn(1536, callback=TimedSteps())
    observation, _ = model.policy.obs_to_tensor(np.zeros(1, np.float32))
    log_chance = model.policy.get_distribution(observation).log_prob(torch.tensor([1]))
    assert log_chance.exp().item() > 0.9


def test_value_at_a_cut_is_bootstrapped_over_the_steps_own_length() -> None:
    gamma, lasts = 0.98, 20.0
    exact = 1.0 / (1.0 - gamma**lasts)  # 3.01; a constant discount at the cuts learns far more
    model = learner(Toy([1.0], [lasts], cut_after=4), gamma, ent_coef=0.0, gae_lambda=1.0)
    model.learn(2048, callback=TimedSteps())
    observation, _ = model.policy.obs_to_tensor(np.zeros(1, np.float32))
    assert model.policy.predict_values(observation).item() == pytest.approx(exact, rel=0.05)


def test_advantages_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    steps, gamma, lam = 6, 0.9, 0.8
    buffer = TimedRolloutBuffer(
        steps, SPACE, spaces.Discrete(2), device="cpu", gae_lambda=lam, gamma=gamma
    )
    buffer.elapsed_s[:, 0] = rng.uniform(0.1, 3.0, steps)
    buffer.rewards[:, 0], buffer.values[:, 0] = rng.normal(size=(2, steps))
    buffer.episode_starts[3, 0] = 1.0
    buffer.compute_returns_and_advantage(torch.tensor([[0.7]]), np.array([False]))

    values = [*buffer.values[:, 0], 0.7]
    discounts = gamma ** buffer.elapsed_s[:, 0]
    for start in range(steps):
        expected, weight = 0.0, 1.0
        for k in range(start, steps):
            ends = k + 1 < steps and bool(buffer.episode_starts[k + 1, 0])
            ahead = 0.0 if ends else discounts[k] * values[k + 1]
            expected += weight * (buffer.rewards[k, 0] + ahead - values[k])
            if ends:
                break
            weight *= discounts[k] * lam
        assert buffer.advantages[start, 0] == pytest.approx(expected, abs=1e-5)
        assert buffer.returns[start, 0] == pytest.approx(expected + values[start], abs=1e-5)
