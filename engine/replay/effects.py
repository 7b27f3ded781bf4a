"""What goes wrong in an episode on replay, read at its engine's own clock.

Memory is not here: `engine.loop` withdraws pages on every backend alike.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.replay.power_levels import LEVELS, Level, PowerLevels, level_of
from engine.workload.disturbances import Disturbances


class Timed(Protocol):
    """Whoever keeps the time: the engine."""

    clock_s: float


class Effects:
    """The drift of acceptance and of draft time, and power caps, of one episode."""

    def __init__(self, of: Disturbances, key: np.uint64, levels: PowerLevels) -> None:
        """`key` is `engine.replay.drift.episode_key`'s, `levels` the device's."""
        self.key, self._of, self._levels = key, of, levels
        self.has_drift, self.has_slow_drafts = of.has("acceptance"), of.has("draft_time")
        self.has_caps = of.has("power_cap")
        self._clock: Timed | None = None

    @staticmethod
    def occur_in(disturbances: Disturbances) -> bool:
        """Whether there is anything to act on."""
        return disturbances.has("acceptance", "draft_time", "power_cap")

    def follow(self, clock: Timed) -> None:
        """Read the episode's table at this clock from now on."""
        self._clock = clock

    def acceptance(self) -> float:
        """Factor on the probability that a draft is accepted."""
        return self._value("acceptance") if self.has_drift else 1.0

    def draft_time(self) -> float:
        """Factor on the time of a draft step."""
        return self._value("draft_time") if self.has_slow_drafts else 1.0

    def device(self) -> Level:
        """The device as it is capped now; where no cap ever comes it is what it always is."""
        return self._levels.at(self._level())

    def cap_watts(self) -> float:
        """The cap that holds now, inf without one."""
        return self._levels.cap_watts(self._level())

    def _level(self) -> int:
        return level_of(self._value("power_cap")) if self.has_caps else LEVELS

    def _value(self, kind: str) -> float:
        if self._clock is None:
            raise RuntimeError("disturbances are read at a clock, and none was given yet")
        return self._of.value(kind, self._clock.clock_s)
