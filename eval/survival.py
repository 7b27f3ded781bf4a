"""Times of which some never came: Kaplan-Meier's curve, its median and its restricted mean.

A controller that had not settled when its regime ended took at least that long. Leaving it out
would flatter it, and so would counting the regime's length as its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol import Floats

ROUNDING = 1e-9
"""Of a product of shares: half may come out a few units of the last place above one half."""


class Curve(NamedTuple):
    """Share not settled yet, by time: 1 before `times[0]`, `share[i]` from `times[i]` on."""

    times: Floats
    share: Floats

    @property
    def median(self) -> float:
        """First time by which half have settled; inf when that is never seen."""
        reached = np.flatnonzero(self.share <= 0.5 + ROUNDING)
        return float(self.times[reached[0]]) if len(reached) else float("inf")

    def restricted_mean(self, limit: float) -> float:
        """Mean time, counting what is beyond `limit` as `limit`: the area under the curve to it."""
        inside = self.times < limit
        edges = np.concatenate([[0.0], self.times[inside], [limit]])
        heights = np.concatenate([[1.0], self.share[inside]])
        return float((np.diff(edges) * heights).sum())


def kaplan_meier(times: Sequence[float], settled: Sequence[bool]) -> Curve:
    """The curve of `times` [n], of which those not `settled` [n] are right-censored.

    At each time at which something settled, the share is multiplied by 1 - settled / at risk; what
    is censored at that very time was still at risk. Raises ValueError for unequal lengths and for a
    time that is nan: who was not judged is counted beside the curve (`eval.adaptation`).
    """
    if len(times) != len(settled):
        raise ValueError(f"{len(times)} times and {len(settled)} marks; expected one for each")
    if np.isnan(times).any():
        raise ValueError("a time is nan; leave out what was not judged")
    at, seen = np.asarray(times, np.float64), np.asarray(settled, np.bool_)
    events = np.unique(at[seen])
    at_risk = np.array([(at >= time).sum() for time in events])
    ended = np.array([(at[seen] == time).sum() for time in events])
    return Curve(events, np.cumprod(1.0 - ended / at_risk) if len(events) else np.ones(0))
