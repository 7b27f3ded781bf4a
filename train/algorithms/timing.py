"""Decisions that last different times: discount by elapsed seconds, not by step.

Stable-Baselines3 knows one γ a step. Here γ is per second of the engine's clock, so a step of τ
seconds discounts by γ^τ (semi-Markov decision process, Bradtke & Duff 1994); the truncated end of a
trace is bootstrapped with the same γ^τ. Hooks in from outside: buffers and a callback.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from stable_baselines3.common.buffers import DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import ReplayBufferSamples

ELAPSED = "elapsed_s"
"""Key of `info` under which the environment says how long its step lasted."""


def discounted_s(elapsed_s: NDArray[Any], gamma: float) -> NDArray[Any]:
    """∫ γ^t dt over steps of so many seconds: each second counts as a reward at its time would."""
    if gamma == 1.0:
        return elapsed_s
    decay = math.log(gamma)
    return np.expm1(decay * elapsed_s) / decay


class TimedRolloutBuffer(RolloutBuffer):
    """A rollout buffer whose `gamma` is per second; `elapsed_s` [steps, envs] says how many."""

    elapsed_s: NDArray[np.float64]

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


class TimedDictBuffer(TimedRolloutBuffer, DictRolloutBuffer):
    """The same, of observations that are dictionaries."""


class TimedMaskableBuffer(TimedRolloutBuffer, MaskableRolloutBuffer):
    """The same, with the masks that actions were chosen under."""


class TimedRecurrentBuffer(TimedRolloutBuffer, RecurrentRolloutBuffer):
    """The same, with the states that an LSTM was in."""


class TimedReplayBuffer(ReplayBuffer):
    """A replay buffer whose samples carry `discounts` γ^τ; `gamma` is per second.

    The end of a trace is a time limit, so it is bootstrapped like any other step.
    """

    gamma: float = 1.0
    reward_rate: float = 0.0
    """Subtracted from samples for every discounted second (`train.algorithms.centring`)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.elapsed_s = np.zeros((self.buffer_size, self.n_envs), dtype=np.float32)

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Keep a step of every environment, and how long it lasted."""
        self.elapsed_s[self.pos] = [info[ELAPSED] for info in infos]
        super().add(obs, next_obs, action, reward, done, infos)

    def _get_samples(self, batch_inds: np.ndarray, env: Any = None) -> ReplayBufferSamples:
        at = batch_inds, np.random.randint(0, self.n_envs, len(batch_inds))
        terminal = self.dones[at] * (1.0 - self.timeouts[at])
        rewards = self.rewards[at]
        if self.reward_rate:
            rewards = rewards - self.reward_rate * discounted_s(self.elapsed_s[at], self.gamma)
        columns = (terminal, rewards, self.gamma ** self.elapsed_s[at])
        dones, earned, discounts = (
            self.to_torch(np.asarray(column, dtype=np.float32)[:, None]) for column in columns
        )
        return ReplayBufferSamples(
            self.to_torch(self.observations[at]),
            self.to_torch(self.actions[at]),
            self.to_torch(self.next_observations[at]),
            dones,
            earned,
            discounts,
        )


class TimedSteps(BaseCallback):
    """Scales rewards; tells a rollout how long steps lasted, and bootstraps where a trace was cut.

    Rewards are multiplied by a fixed `scale` on their way into the buffer, whichever it is.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def _on_step(self) -> bool:
        """Runs between the environment's step and the buffer's `add`."""
        self.locals["rewards"] *= self.scale
        buffer = self.locals.get("rollout_buffer")
        if buffer is not None:
            assert isinstance(buffer, TimedRolloutBuffer)
            for index, info in enumerate(self.locals["infos"]):
                self._note(buffer, index, info)
        return True

    def _note(self, buffer: TimedRolloutBuffer, index: int, info: dict[str, Any]) -> None:
        buffer.elapsed_s[buffer.pos, index] = info[ELAPSED]
        final = info.get("terminal_observation")
        if final is not None and info.get("TimeLimit.truncated", False):
            value = buffer.gamma ** info[ELAPSED] * self._value(final, index)
            self.locals["rewards"][index] += value
            info["TimeLimit.truncated"] = False  # or it would be added again with γ^1

    def _value(self, observation: np.ndarray, index: int) -> float:
        """Of the last observation of environment `index`, in the state its critic is in."""
        policy: Any = self.model.policy
        rows, _ = policy.obs_to_tensor(observation)
        states = self.locals.get("lstm_states")
        with torch.no_grad():
            if states is None:
                return float(policy.predict_values(rows))
            own = tuple(part[:, index : index + 1].contiguous() for part in states.vf)
            return float(policy.predict_values(rows, own, torch.zeros(1)))
