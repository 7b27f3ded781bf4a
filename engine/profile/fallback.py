"""Ordinary decoding in place of a controller that needs a hardware profile where there is none.

Only a controller that declares `needs_profile` is replaced; one that merely profits from a profile
is asked as ever and finds `View.pricing` empty. The replacement is logged once for each controller;
the engine counts every decision made so (`Engine.counters["unpriced"]`).
"""

from __future__ import annotations

import logging

from engine.protocol import Controller, Plan, View, uniform_plan

LOG = logging.getLogger("draftgym.profile")
UNKNOWN = "there is none; measure one with `python -m engine.profile`"


class WithoutProfile(Controller):
    """No speculation, whoever would have decided."""

    name = "ordinary decoding for want of a profile"

    def plan(self, view: View) -> Plan:
        """Depth 0 for all."""
        return uniform_plan(view.limits, 0, 1, 0)


class Fallback:
    """Stands `WithoutProfile` in for controllers, and says so once for each."""

    def __init__(self, missing: str = UNKNOWN) -> None:
        """`missing` says why there is no profile and how to get one."""
        self.missing = missing
        self._stand_in = WithoutProfile()
        self._told: set[str] = set()

    def instead_of(self, controller: Controller) -> Controller:
        """The one that decides in the controller's place."""
        if controller.name not in self._told:
            self._told.add(controller.name)
            LOG.warning(
                "controller %s needs a hardware profile, so requests are decoded without "
                "speculation: %s",
                controller.name,
                self.missing,
            )
        return self._stand_in
