"""What happens beside learning: figures to TensorBoard and JSONL, checkpoints, the bar, the stop.

Each is a Stable-Baselines3 callback of one concern. How a model is saved is `train.ppo`'s, where,
`train.run_folder`'s.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat

from train.chart_lines import LAYOUT, ChartLines, chart_of
from train.interrupt import StopRequest
from train.progress import ProgressLine
from train.timed_ppo import ELAPSED
from train.window import REWARD

LOG_EVERY_S = 5.0
SAVE_EVERY_S = 30.0
SHOW_EVERY_S = 0.5


class HasFigures(Protocol):
    """An environment that is watched."""

    def figures(self) -> dict[str, float]:
        """Tags and values of what its engines did lately."""
        ...


class Clock:
    """Training time of a run: what earlier parts took, and this one so far."""

    def __init__(self, before_s: float) -> None:
        self._start = time.monotonic() - before_s

    @property
    def elapsed_s(self) -> float:
        """Seconds of training, resumed parts included."""
        return time.monotonic() - self._start


class JsonLines(KVWriter):
    """Appends one JSON object for each logging; a line is written whole or taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_file():
            cut_partial_line(path)

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0
    ) -> None:
        """Numbers only; what is not finite becomes null."""
        numbers = {
            key: float(value) if math.isfinite(value) else None
            for key, value in sorted(key_values.items())
            if isinstance(value, int | float | np.number)
        }
        line = json.dumps({"step": step, "time": round(time.time(), 3), **numbers}) + "\n"
        with self.path.open("ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                written = file.write(line.encode())
                if written != len(line.encode()):
                    # A nearly full disk takes a part; the next write says why.
                    file.write(line.encode()[written:])
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise

    def close(self) -> None:
        """Nothing is held open."""


def cut_partial_line(path: Path) -> None:
    """Drop what a killed process left after the last complete line."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def run_logger(folder: Path, metrics: Path) -> Logger:
    """Stable-Baselines3's logger to TensorBoard events in `folder` and to `metrics` as JSONL."""
    events = TensorBoardOutputFormat(str(folder))
    events.writer.add_custom_scalars(LAYOUT)
    return Logger(str(folder), [events, ChartLines(folder), JsonLines(metrics)])


class Recorder(BaseCallback):
    """Writes the window's figures every few seconds."""

    def __init__(self, watched: HasFigures, clock: Clock) -> None:
        super().__init__()
        self._watched, self._clock = watched, clock
        self._last_s = clock.elapsed_s

    def _on_step(self) -> bool:
        if self._clock.elapsed_s - self._last_s >= LOG_EVERY_S:
            self.record()
        return True

    def _on_training_end(self) -> None:
        self.record()

    def record(self) -> None:
        """One line of figures at the current step."""
        self._last_s = self._clock.elapsed_s
        for key, value in self._watched.figures().items():
            # A line of a shared chart is drawn by ChartLines alone.
            self.logger.record(key, value, exclude="tensorboard" if chart_of(key) else None)
        self.logger.record("time/training_s", self._clock.elapsed_s)
        self.logger.dump(self.num_timesteps)


class Saver(BaseCallback):
    """Saves every half minute, and apart the model of the rollout with most reward a second.

    Per second of the engine's clock, since decisions last different times; the reward is the
    environment's, without what `TimedSteps` adds where a trace was cut.
    """

    def __init__(
        self, save: Callable[[], None], save_best: Callable[[], None], best_reward: float
    ) -> None:
        super().__init__()
        self._save, self._save_best = save, save_best
        self.best_reward = best_reward
        self._last = time.monotonic()

    def _on_rollout_start(self) -> None:
        self._reward = self._elapsed_s = 0.0

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            self._reward += sum(part for key, part in info.items() if key.startswith(REWARD))
            self._elapsed_s += info[ELAPSED]
        if time.monotonic() - self._last >= SAVE_EVERY_S:
            self._save()
            self._last = time.monotonic()
        return True

    def _on_rollout_end(self) -> None:
        """The model that acted in this rollout stands until the update that follows."""
        reward = self._reward / self._elapsed_s if self._elapsed_s > 0 else -math.inf
        if reward > self.best_reward:
            self.best_reward = reward
            self._save_best()


class Bar(BaseCallback):
    """Moves the progress line."""

    def __init__(
        self, line: ProgressLine, watched: HasFigures, clock: Clock, total_s: float
    ) -> None:
        super().__init__()
        self._line, self._watched, self._clock, self._total_s = line, watched, clock, total_s
        self._last_s, self._first_step = -math.inf, 0

    def _on_training_start(self) -> None:
        self._first_step, self._begun_s = self.num_timesteps, self._clock.elapsed_s

    def _on_step(self) -> bool:
        now_s = self._clock.elapsed_s
        if now_s - self._last_s < SHOW_EVERY_S:
            return True
        self._last_s = now_s
        figures = self._watched.figures()
        attained = figures.get("slo/attainment")
        rate = (self.num_timesteps - self._first_step) / max(now_s - self._begun_s, 1e-9)
        self._line.update(
            now_s,
            "" if attained is None else f"attainment {100 * attained:.0f} %",
            f"goodput {figures.get('slo/goodput_tps', 0.0):.0f} tok/s",
            f"{rate:.1f} steps/s",
            left_s=self._total_s - now_s,
        )
        return True


class Limit(BaseCallback):
    """Ends training when its time is up or a stop was asked for."""

    def __init__(self, clock: Clock, total_s: float, stop: StopRequest) -> None:
        super().__init__()
        self._clock, self._total_s, self._stop = clock, total_s, stop

    def _on_step(self) -> bool:
        return self._clock.elapsed_s < self._total_s and not self._stop.requested
