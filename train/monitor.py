"""monitor.csv of a run: a row for every episode of training, in Stable-Baselines3's Monitor format.

Columns r (what the episode earned, as the environment pays), l (decisions) and t (seconds of
training) are Monitor's, which tools such as rl_zoo3's plots read; attainment and goodput are ours.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train.algorithms.carried import Kept
from train.appended_file import append_whole
from train.callbacks import Clock

COLUMNS = ("r", "l", "t", "attainment", "goodput_tps")


class EpisodeTable(Kept):
    """Writes the rows; stands before whoever changes the rewards of a step.

    Rows that were written after the state that training goes on from are taken back.
    """

    def __init__(self, path: Path, env_id: str, clock: Clock, within_episodes: bool) -> None:
        """`within_episodes`: a resumed run goes on in the midst of its episodes."""
        super().__init__()
        self._path, self._env_id, self._clock = path, env_id, clock
        self._within = within_episodes
        self._earned, self._decisions = np.zeros(0), np.zeros(0, np.int64)

    def state(self) -> dict[str, Any]:
        """How long the file is, and what the episodes under way came to."""
        return {
            "bytes": self._path.stat().st_size if self._path.is_file() else 0,
            "earned": self._earned.tolist(),
            "decisions": self._decisions.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        kept = int(state.get("bytes", 0))
        if self._path.is_file() and self._path.stat().st_size > kept:
            os.truncate(self._path, kept)
        earned = state.get("earned", [])
        if self._within and len(earned) == self.training_env.num_envs:
            self._earned, self._decisions = np.array(earned), np.array(state["decisions"])

    def _init_callback(self) -> None:
        count = self.training_env.num_envs
        self._earned, self._decisions = np.zeros(count), np.zeros(count, np.int64)
        super()._init_callback()
        if not self._path.is_file() or self._path.stat().st_size == 0:
            header = {"t_start": time.time() - self._clock.elapsed_s, "env_id": self._env_id}
            append_whole(self._path, f"#{json.dumps(header)}\n{','.join(COLUMNS)}\n")

    def _on_step(self) -> bool:
        self._earned += self.locals["rewards"]
        self._decisions += 1
        for index in np.flatnonzero(self.locals["dones"]).tolist():
            serving = self.locals["infos"][index]["serving"]
            row = (
                f"{self._earned[index]:.6f}",
                str(self._decisions[index]),
                f"{self._clock.elapsed_s:.6f}",
                *(_number(serving[name]) for name in COLUMNS[3:]),
            )
            append_whole(self._path, ",".join(row) + "\n")
            self._earned[index], self._decisions[index] = 0.0, 0
        return True


def _number(value: float) -> str:
    """Empty where there was nothing to count."""
    return f"{value:.6f}" if math.isfinite(value) else ""
