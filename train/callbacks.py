"""What happens beside learning: figures to TensorBoard and JSONL, checkpoints, the bar, the stop.

Each is a Stable-Baselines3 callback of one concern. How a model is saved is `train.saved_model`'s,
where, `train.run_folder`'s; which is the best, `train.best_model`'s. On replay a run can be taken
up bit for bit between two rollouts, so there alone it is saved and ended.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter

from train.appended_file import append_whole, cut_after, cut_partial_line
from train.chart_lines import LAYOUT, ChartLines, chart_of
from train.interrupt import StopRequest
from train.progress import ProgressLine

LOG_EVERY_S = 5.0
SHOW_EVERY_S = 0.5


class Enough(Exception):
    """Training ends here, between two rollouts."""


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


class Extent:
    """How long training goes on: seconds, and decisions where a number is given."""

    def __init__(self, clock: Clock, total_s: float, decisions: int | None, first: int = 0) -> None:
        """Decisions are those behind the `first`, which others made."""
        self.clock, self._total_s = clock, total_s
        self._decisions, self._first = decisions, first

    @property
    def last(self) -> int | None:
        """The decision that ends it; None: only time does."""
        return None if self._decisions is None else self._first + self._decisions

    @property
    def time_is_up(self) -> bool:
        """Whether the seconds are over."""
        return self.clock.elapsed_s >= self._total_s

    def share(self, decisions: int) -> float:
        """How much of it is behind after so many decisions, from 0 to 1."""
        done = self.clock.elapsed_s / self._total_s
        if self._decisions is not None:
            done = max(done, (decisions - self._first) / self._decisions)
        return min(done, 1.0)

    def schedule(self, decisions: int) -> float:
        """The same for schedules: by decisions alone where they are given, so that it repeats."""
        if self._decisions is None:
            return self.share(decisions)
        return min((decisions - self._first) / self._decisions, 1.0)

    def left_s(self, decisions: int, rate: float) -> float:
        """Seconds to go, at `rate` decisions a second."""
        left = self._total_s - self.clock.elapsed_s
        if self.last is not None and rate > 0:
            left = min(left, (self.last - decisions) / rate)
        return left


class JsonLines(KVWriter):
    """Appends one JSON object for each logging; a line is written whole or taken back."""

    def __init__(self, path: Path, step: int | None = None) -> None:
        """`step` is where a run goes on from, so what was written after it is taken back."""
        self.path = path
        if path.is_file():
            cut_partial_line(path)
            if step is not None:
                cut_after(path, step)

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0
    ) -> None:
        """Numbers only; what is not finite becomes null."""
        numbers = {
            key: float(value) if math.isfinite(value) else None
            for key, value in sorted(key_values.items())
            if isinstance(value, int | float | np.number)
        }
        line = json.dumps({"step": step, "time": round(time.time(), 3), **numbers})
        append_whole(self.path, line + "\n")

    def close(self) -> None:
        """Nothing is held open."""


def run_logger(folder: Path, metrics: Path, step: int = 0) -> Logger:
    """Stable-Baselines3's logger to TensorBoard events in `folder` and to `metrics` as JSONL.

    `step` is where the run goes on from: what was logged behind it, before a kill, is gone.
    """
    lines = ChartLines(folder, step)
    events = Events(lines.events(folder))
    events.writer.add_custom_scalars(LAYOUT)
    return Logger(str(folder), [events, lines, JsonLines(metrics, step)])


class Events(TensorBoardOutputFormat):
    """Writes where it is told to, into no folder of its own making."""

    def __init__(self, writer: SummaryWriter) -> None:
        self.writer = writer
        self._is_closed = False


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


class Checkpoints(BaseCallback):
    """Saves every so many seconds of the wall clock; when, changes nothing about training."""

    def __init__(self, save: Callable[[], None], every_s: float, between_rollouts: bool) -> None:
        """Saves where a rollout begins, or after any step."""
        super().__init__()
        self._save, self._every_s, self._between = save, every_s, between_rollouts
        self._last_s = time.monotonic()

    def _on_rollout_start(self) -> None:
        if self._between:
            self._save_if_due()

    def _on_step(self) -> bool:
        if not self._between:
            self._save_if_due()
        return True

    def _save_if_due(self) -> None:
        if time.monotonic() - self._last_s >= self._every_s:
            self._save()
            self._last_s = time.monotonic()


class Bar(BaseCallback):
    """Moves the progress line."""

    def __init__(self, line: ProgressLine, watched: HasFigures, extent: Extent) -> None:
        super().__init__()
        self._line, self._watched, self._extent = line, watched, extent
        self._clock = extent.clock
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
        served = "goodput", figures.get("slo/goodput_tps", 0.0)
        if attained is None:  # nobody who was promised anything has ended yet, or ever will
            served = "throughput", figures.get("engine/throughput_tps", 0.0)
        rate = (self.num_timesteps - self._first_step) / max(now_s - self._begun_s, 1e-9)
        self._line.update(
            self._extent.share(self.num_timesteps),
            "" if attained is None else f"attainment {100 * attained:.0f} %",
            "{} {:.0f} tok/s".format(*served),
            f"{rate:.1f} steps/s",
            left_s=self._extent.left_s(self.num_timesteps, rate),
        )
        return True


class Limit(BaseCallback):
    """Ends training when its time is up or a stop was asked for, and says how far it is.

    Decisions end it by themselves, after the update that the last of them lead to.
    """

    def __init__(self, extent: Extent, stop: StopRequest, between_rollouts: bool) -> None:
        """Ends it where a rollout begins, or after any step."""
        super().__init__()
        self._extent, self._stop, self._between = extent, stop, between_rollouts

    def _on_rollout_start(self) -> None:
        if self._between and self._is_over:
            raise Enough

    def _on_step(self) -> bool:
        learner: Any = self.model
        learner.share_done = self._extent.schedule(self.num_timesteps)
        return self._between or not self._is_over

    @property
    def _is_over(self) -> bool:
        return self._extent.time_is_up or self._stop.requested
