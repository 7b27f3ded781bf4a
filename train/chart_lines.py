"""TensorBoard draws one colour a run; so each class, stage and baseline is a small run of its own.

`slo/attainment/coding` is written as the tag `slo/attainment` of the run `lines/coding`, so that a
chart shows the classes, or the baselines, in colours with a legend.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter
from torch.utils.tensorboard import SummaryWriter

FOLDER = "lines"
CHARTS = (
    "slo/attainment",
    "action/depth",
    "action/width",
    "action/nodes",
    "share_of_time",
    "reward",
)
LAYOUT = {
    "is the policy better, for whom, at what cost": {
        "held out: attainment, beside the baselines": ["Multiline", ["eval/attainment"]],
        "held out: goodput, tokens/s": ["Multiline", ["eval/goodput_tps"]],
        "in training: attainment by class": ["Multiline", ["slo/attainment"]],
        "depth by class": ["Multiline", ["action/depth"]],
        "nodes by class": ["Multiline", ["action/nodes"]],
        "share of the slots that may be held": ["Multiline", ["action/running"]],
        "where time goes": ["Multiline", ["share_of_time"]],
        "reward and its parts": ["Multiline", ["reward"]],
    }
}


def chart_of(key: str) -> str | None:
    """The chart on which a tag is one line of several, None for a tag of its own."""
    chart = key.rpartition("/")[0]
    return chart if chart in CHARTS else None


class ChartLines(KVWriter):
    """Writes the tags that belong on a shared chart, one sub-run a line."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        """Of a run that goes on from `step`, beyond which TensorBoard forgets what stood there."""
        self.folder, self._step = folder, step
        self._writers: dict[str, SummaryWriter] = {}

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0
    ) -> None:
        """Numbers only."""
        for key, value in key_values.items():
            chart = chart_of(key)
            if chart is not None and isinstance(value, int | float | np.number):
                self.writer(key.rpartition("/")[2]).add_scalar(chart, value, step)
        for writer in self._writers.values():
            writer.flush()

    def writer(self, line: str) -> SummaryWriter:
        """The sub-run of a line."""
        if line not in self._writers:
            self._writers[line] = self.events(self.folder / FOLDER / line)
        return self._writers[line]

    def events(self, folder: Path) -> SummaryWriter:
        """A writer into the folder."""
        return SummaryWriter(str(folder), purge_step=self._step + 1 if self._step else None)

    def close(self) -> None:
        """Close all sub-runs."""
        for writer in self._writers.values():
            writer.close()
