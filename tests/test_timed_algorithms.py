"""Discount by elapsed time: toys that a constant γ gets wrong, by every algorithm; buffers by hand.

ALGORITHMS.md §14 asks for the two toys: the right action, and the value where a trace is cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback

from tests.timed_toys import SCALE, SPACE, chance_of_second, choosing, value, valuing
from train.algorithms.registry import ALGORITHMS
from train.algorithms.timing import TimedReplayBuffer, TimedRolloutBuffer


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_short_step_beats_a_long_one_that_pays_twice_as_much(name: str) -> None:
    assert chance_of_second(choosing(name)) >= 0.99


@pytest.mark.parametrize("name", ALGORITHMS)
def test_value_at_a_cut_is_bootstrapped_over_the_steps_own_length(name: str) -> None:
    model, exact = valuing(name)
    assert value(model) == pytest.approx(exact, rel=0.01)


class PlainSteps(BaseCallback):
    """Scales as `TimedSteps` does, and says that every step lasted a second."""

    def _on_step(self) -> bool:
        self.locals["rewards"] *= SCALE
        for info in self.locals["infos"]:
            info["elapsed_s"] = 1.0
        if (buffer := self.locals.get("rollout_buffer")) is not None:
            buffer.elapsed_s[buffer.pos] = 1.0
        return True


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_constant_discount_would_choose_the_long_step(name: str) -> None:
    assert chance_of_second(choosing(name, PlainSteps())) < 0.01


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


def test_a_sample_knows_how_long_its_step_lasted_and_that_a_cut_is_no_end() -> None:
    buffer = TimedReplayBuffer(8, SPACE, spaces.Discrete(4), device="cpu", n_envs=2)
    buffer.gamma = 0.5
    # Step, environment: reward 10 · step + environment, seconds step + 1; then an end and a cut.
    for step in range(3):
        last = step == 2
        infos: list[dict[str, Any]] = [
            {"elapsed_s": step + 1.0, "TimeLimit.truncated": last and env == 1} for env in (0, 1)
        ]
        rewards = np.array([10.0 * step, 10.0 * step + 1])
        rows = np.full((2, 1), step / 10)
        buffer.add(rows, rows + 0.1, np.array([step, step]), rewards, np.array([last] * 2), infos)
    np.random.seed(0)
    sample = buffer.sample(200)
    assert sample.discounts is not None
    seen = set()
    for i in range(200):
        step, env = divmod(int(sample.rewards[i]), 10)
        seen.add((step, env))
        assert sample.discounts[i].item() == 0.5 ** (step + 1)
        assert sample.dones[i].item() == float(step == 2 and env == 0)
        assert sample.actions[i].item() == step
        assert sample.observations[i].item() == pytest.approx(step / 10)
        assert sample.next_observations[i].item() == pytest.approx(step / 10 + 0.1)
    assert len(seen) == 6
    assert sample.rewards.shape == sample.dones.shape == sample.discounts.shape == (200, 1)
