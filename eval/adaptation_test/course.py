"""The course of a run: what it brought and what the controller did, window by window.

Plain lists, so that it can be kept as JSON and taken up in another process. A stretch of it becomes
the series that `eval.adaptation` judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.protocol import Floats, Outcome, View
from engine.request import RequestRecord
from eval.emissions import emitted_at_s
from eval.windows import Series, Timeline, attained

if TYPE_CHECKING:
    from engine.loop import Engine


@dataclass(frozen=True)
class Course:
    """Windows [W] end to end from 0 on, `window_s` long."""

    window_s: float
    valid_tps: list[float]
    """SLO-valid tokens per second."""
    good_tps: list[float]
    """Tokens of requests that ended there and met their objectives, per second."""
    iterations: list[int]
    judged: list[int]
    """Requests with an objective that ended."""
    violations: list[int]
    changes: list[float]
    """Changes of action, as shares of the running requests, summed."""
    depth: list[float]
    """Draft positions offered to the target by request and iteration, nan where nobody decoded."""
    nodes: list[float]
    """Drafts verified, likewise."""

    def series(self, start_s: float, end_s: float) -> Series:
        """The windows between two times. Raises ValueError for times within a window."""
        first, last = start_s / self.window_s, end_s / self.window_s
        if abs(first - round(first)) > 1e-6 or abs(last - round(last)) > 1e-6:
            raise ValueError(f"{start_s:g} to {end_s:g} s cuts windows of {self.window_s:g} s")
        cut = slice(round(first), round(last))
        return Series(
            start_s=start_s,
            window_s=self.window_s,
            valid_tps=np.array(self.valid_tps[cut], np.float64),
            iterations=np.array(self.iterations[cut], np.int64),
            judged=np.array(self.judged[cut], np.int64),
            violations=np.array(self.violations[cut], np.int64),
            changes=np.array(self.changes[cut], np.float64),
        )

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @property
    def attainment(self) -> Floats:
        """[W] share of the requests that ended there and met their objectives, nan without any."""
        return attained(self.judged, self.violations)


def course_of(timeline: Timeline, acts: Acts, end_s: float, window_s: float) -> Course:
    """What two observers of a run noted."""
    series = timeline.series(0.0, end_s, window_s)
    count = len(series.valid_tps)

    def summed(at_s: Sequence[float], amounts: Sequence[float]) -> Floats:
        window = (np.array(at_s, np.float64) / window_s).astype(np.int64)
        inside = window < count
        weights = np.array(amounts, np.float64)[inside]
        return np.asarray(np.bincount(window[inside], weights, count), np.float64)

    ran = summed(acts.at_s, acts.ran)
    ran[ran == 0] = np.nan
    return Course(
        window_s=window_s,
        valid_tps=series.valid_tps.tolist(),
        good_tps=(summed(acts.good_at_s, acts.good_tokens) / window_s).tolist(),
        iterations=series.iterations.tolist(),
        judged=series.judged.tolist(),
        violations=series.violations.tolist(),
        changes=series.changes.tolist(),
        depth=(summed(acts.at_s, acts.offered) / ran).tolist(),
        nodes=(summed(acts.at_s, acts.verified) / ran).tolist(),
    )


class Acts:
    """An observer of what was done: how deep and how large the verified trees were."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.ran: list[float] = []
        self.offered: list[float] = []
        self.verified: list[float] = []
        self.good_at_s: list[float] = []
        self.good_tokens: list[float] = []

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Sums over the requests that decoded; the root is no draft."""
        ran = int(outcome.ran.sum())
        self.at_s.append(emitted_at_s(outcome))
        self.ran.append(ran)
        self.offered.append(int(outcome.proposed[outcome.ran].sum()))
        self.verified.append(int(outcome.verified[outcome.ran].sum()) - ran)

    def on_record(self, record: RequestRecord) -> None:
        """Its tokens, where it met its objectives."""
        if record.good_tokens:
            self.good_at_s.append(record.finish_s)
            self.good_tokens.append(record.good_tokens)

    def close(self) -> None:
        """Nothing is written."""
