"""A device under power caps that come and go: its profile at every cap that may hold.

Caps are kept in whole per cents of the device's highest power, so that ramps are climbed in stairs
and what a cap does is worked out once for all episodes. A constant cap of the server holds beside
them, and the smaller counts. A cap below what the device draws at its lowest clock cannot be kept:
then it runs at that clock.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from engine.profile.hardware_profile import HardwareProfile
from engine.profile.power_model import StagePower, capped

LEVELS = 100
"""The level without a cap that comes and goes; level i caps at i per cent."""
ABOVE_IDLE = 1.0 + 1e-9
"""A cap is understood above idle power only; right there the clock is the lowest."""


class Level(NamedTuple):
    """The device under one cap."""

    profile: HardwareProfile
    power: StagePower
    """Of each stage, also where the profile knows watts of whole steps alone: a cap slows each
    stage by itself."""


class PowerLevels:
    """Levels of one device, each worked out when it is first needed."""

    def __init__(self, free: HardwareProfile, constant_watts: float | None = None) -> None:
        """`free` is the profile without any cap, `constant_watts` the cap that always holds."""
        self.free = free
        self._constant_watts = float("inf") if constant_watts is None else constant_watts
        power = free.power
        self.peak_watts = max([*power.watts, *power.stages.values(), power.idle_watts])
        self._levels: dict[int, Level] = {}

    def cap_watts(self, level: int) -> float:
        """The cap at a level, the constant one regarded; inf for none."""
        share_watts = self.peak_watts * level / LEVELS if level < LEVELS else float("inf")
        return min(share_watts, self._constant_watts)

    def at(self, level: int) -> Level:
        """The device at a level."""
        if level not in self._levels:
            cap_watts, profile = self.cap_watts(level), self.free
            if cap_watts < float("inf"):
                idle_watts = StagePower(profile).idle_watts
                profile = capped(profile, max(cap_watts, ABOVE_IDLE * idle_watts))
            self._levels[level] = Level(profile, StagePower(profile))
        return self._levels[level]


@njit(cache=True)
def level_of(share: float) -> int:
    """The level of a cap that is a share of the highest power."""
    return int(share * LEVELS + 0.5)
