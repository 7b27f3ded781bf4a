"""A baseline over time for engines that are given the same arrivals (Mao et al. 2019, Decima).

What comes makes much of a return whatever is decided, and the others of a group met the same. So
PART of the mean of their advantages at the same moment of the same episode is taken from each
advantage. It knows nothing of the decision that it judges, so the gradient stays unbiased; what the
critic learns is left alone. Moments are seconds of the engine's clock, in between the others'
decisions linearly; where none of the others has been there within the rollout, nothing is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.protocol import Floats, Ints
from train.algorithms.carried import Kept
from train.algorithms.timing import ELAPSED

PART = 0.5
"""The mean of a few others is noisy: where a third of the variance is in common, as with a trained
critic on shifting load, half of it takes most away."""


class SharedBaseline(Kept):
    """Takes the baseline from a rollout's advantages before they are learned from."""

    def __init__(self, group: int) -> None:
        """Engines 0 to group - 1 have the same episodes in the same order, and so on."""
        super().__init__()
        self.group = group
        self.begun: Ints = np.zeros(0, np.int64)
        """[R] which episode everybody is in."""

    def state(self) -> dict[str, list[int]]:
        """All that is remembered from one rollout to the next."""
        return {"begun": self.begun.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        self.begun = np.array(state.get("begun", [0] * self.training_env.num_envs), np.int64)

    def _on_rollout_start(self) -> None:
        self._episode: list[Ints] = []  # [R] each, a step's
        self._time_s: list[Floats] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self._episode.append(self.begun)
        self._time_s.append(np.array([info["clock_s"] - info[ELAPSED] for info in infos]))
        self.begun = self.begun + self.locals["dones"]
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        advantages = model.rollout_buffer.advantages
        baseline = others_mean(
            advantages, np.array(self._episode), np.array(self._time_s), self.group
        )
        before = float(advantages.var())
        advantages -= PART * baseline
        if before > 0:
            self.logger.record("train/advantage_variance_kept", float(advantages.var()) / before)


def others_mean(values: Floats, episode: Ints, time_s: Floats, group: int) -> Floats:
    """[T, R] mean of the values [T, R] of the others in the group at the same time of the episode.

    `time_s` [T, R] rises within an episode. 0 where none of the others knows.
    """
    total, known = np.zeros(values.shape), np.zeros(values.shape)
    for first in range(0, values.shape[1], group):
        members = range(first, first + group)
        for other in members:
            for number in np.unique(episode[:, other]).tolist():
                rows = episode[:, other] == number
                at_s, told = time_s[rows, other], values[rows, other]
                for member in members:
                    if member == other:
                        continue
                    asked_s = time_s[:, member]
                    inside = (asked_s >= at_s[0]) & (asked_s <= at_s[-1])
                    inside &= episode[:, member] == number
                    total[inside, member] += np.interp(asked_s[inside], at_s, told)
                    known[inside, member] += 1
    return total / np.maximum(known, 1)
