"""PPO for decisions that last different times: discount by elapsed seconds, not by step.

Stable-Baselines3 knows one γ a step. Here γ is per second of the engine's clock, so a step of
τ seconds discounts by γ^τ (semi-Markov decision process, Bradtke & Duff 1994); the truncated end
of a trace is bootstrapped with the same γ^τ. Hooks into PPO from outside: a buffer and a callback.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy

ELAPSED = "elapsed_s"
"""Key of `info` under which the environment says how long its step lasted."""


class TimedRolloutBuffer(RolloutBuffer):
    """A rollout buffer whose `gamma` is per second; `elapsed_s` [steps, envs] says how many."""

    elapsed_s: np.ndarray

    def reset(self) -> None:
        """Forget the rollout."""
        self.elapsed_s = np.zeros((self.buffer_size, self.n_envs), dtype=np.float64)
        super().reset()

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """Generalised advantages with γ^τ in place of γ; λ stays per decision."""
        discounts = self.gamma**self.elapsed_s
        ends = np.concatenate([self.episode_starts[1:], np.reshape(dones, (1, -1))])
        goes_on = 1.0 - ends.astype(np.float64)
        last = last_values.detach().cpu().numpy().reshape(1, -1)
        next_values = np.concatenate([self.values[1:], last])
        advantage = np.zeros(self.n_envs)
        for step in reversed(range(self.buffer_size)):
            kept = discounts[step] * goes_on[step]
            delta = self.rewards[step] + kept * next_values[step] - self.values[step]
            advantage = delta + kept * self.gae_lambda * advantage
            self.advantages[step] = advantage
        self.returns = self.advantages + self.values


class TimedSteps(BaseCallback):
    """Tells the buffer how long each step lasted, and bootstraps where a trace was cut.

    Rewards are multiplied by a fixed `scale` on their way into the buffer.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def _on_step(self) -> bool:
        """Runs between the environment's step and the buffer's `add`."""
        buffer, policy = self.locals["rollout_buffer"], self.model.policy
        infos: list[dict[str, Any]] = self.locals["infos"]
        assert isinstance(buffer, TimedRolloutBuffer)
        assert isinstance(policy, ActorCriticPolicy)
        self.locals["rewards"] *= self.scale
        for index, info in enumerate(infos):
            buffer.elapsed_s[buffer.pos, index] = info[ELAPSED]
            final = info.get("terminal_observation")
            if final is None or not info.get("TimeLimit.truncated", False):
                continue
            with torch.no_grad():
                observation, _ = policy.obs_to_tensor(final)
                value = policy.predict_values(observation).item()
            self.locals["rewards"][index] += buffer.gamma ** info[ELAPSED] * value
            info["TimeLimit.truncated"] = False  # or it would be added again with γ^1
        return True
