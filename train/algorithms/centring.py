"""Reward centring for the endless task (Naik, Wan, Tomar & Sutton 2024), with discount by time.

The mean reward rate r̄ is subtracted from what is learned from, so that values lie around 0 and not
around r̄ / β, however small β = -ln γ is. A step of τ seconds is charged r̄ · (1 - γ^τ) / β: its
seconds, each discounted as the rewards behind it are. Whatever is chosen then costs r̄ / β in all,
so the best policy stays the best; r̄ · τ would charge long steps too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.algorithms.carried import Kept
from train.algorithms.timing import ELAPSED, TimedReplayBuffer, discounted_s

MEMORY_S = 120.0
"""Engine seconds of each environment after which a step counts for 1/e in the mean (ours)."""


class Centring(Kept):
    """Subtracts the mean rate; belongs behind `Limits` and before `TimedSteps`, which scales.

    A replay buffer keeps rewards as they were and subtracts the present rate from its samples.
    """

    def __init__(self, scale: float = 1.0) -> None:
        """`scale` is that of `TimedSteps`."""
        super().__init__()
        self.scale = scale
        self.reward = self.time_s = 0.0
        """Decayed sums of rewards and discounted seconds; their ratio is the rate."""
        self._rewards = self._times_s = self._elapsed_s = 0.0  # of this rollout

    @property
    def rate(self) -> float:
        """Mean reward a discounted second; 0 before anything was seen."""
        return self.reward / self.time_s if self.time_s > 0 else 0.0

    def state(self) -> dict[str, float]:
        """All that is remembered from one rollout to the next."""
        return {"reward": self.reward, "time_s": self.time_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        self.reward, self.time_s = state.get("reward", 0.0), state.get("time_s", 0.0)

    def _init_callback(self) -> None:
        super()._init_callback()
        self._tell_buffer()

    def _on_rollout_start(self) -> None:
        self._rewards = self._times_s = self._elapsed_s = 0.0

    def _on_step(self) -> bool:
        elapsed_s = np.array([info[ELAPSED] for info in self.locals["infos"]], np.float64)
        rewards: NDArray[Any] = self.locals["rewards"]
        times_s = discounted_s(elapsed_s, self.model.gamma)  # type: ignore[attr-defined]
        self._rewards += float(rewards.sum())
        self._times_s += float(times_s.sum())
        self._elapsed_s += float(elapsed_s.mean())
        if self._buffer is None:
            rewards -= self.rate * times_s
        return True

    def _on_rollout_end(self) -> None:
        kept = math.exp(-self._elapsed_s / MEMORY_S)
        self.reward = kept * self.reward + self._rewards
        self.time_s = kept * self.time_s + self._times_s
        self._tell_buffer()
        self.logger.record("train/reward_rate", self.rate)

    @property
    def _buffer(self) -> TimedReplayBuffer | None:
        return getattr(self.model, "replay_buffer", None)

    def _tell_buffer(self) -> None:
        if self._buffer is not None:
            self._buffer.reward_rate = self.rate * self.scale
