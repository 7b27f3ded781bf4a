"""Ordinary decoding in place of a controller that needs a hardware profile where there is none.

Only a controller that declares `needs_profile` is replaced; one that merely profits from a profile
is asked as ever. The replacement is logged once, and every decision made in its place is counted.
"""

from __future__ import annotations

import logging

from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import Controller, Plan, View, uniform_plan

LOG = logging.getLogger("draftgym.profile")


class ProfiledController(Controller):
    """Base of controllers that price their plans: `profile` is set before `reset` is called."""

    needs_profile = True
    profile: HardwareProfile


class WithoutProfile(Controller):
    """Ordinary decoding, standing in for `replaced`."""

    def __init__(self, replaced: Controller) -> None:
        self.replaced = replaced
        self.name = f"{replaced.name} (no profile: ordinary decoding)"
        self.fallbacks = 0
        """Decisions made in the controller's place."""

    def plan(self, view: View) -> Plan:
        """No speculation."""
        self.fallbacks += 1
        return uniform_plan(view.limits, 0, 1, 0)


def with_profile(controller: Controller, profile: HardwareProfile | None) -> Controller:
    """The controller, its profile set if it is a `ProfiledController`, or its replacement.

    It comes back itself and not in a wrapper, because the loop looks at which methods a controller
    defines: a wrapper that passes all of them on would be asked for `extend` and `select` too.
    """
    if profile is not None:
        if isinstance(controller, ProfiledController):
            controller.profile = profile
        return controller
    if not controller.needs_profile:
        return controller
    LOG.warning(
        "controller %s needs a hardware profile and there is none: requests are decoded without "
        "speculation; measure one with `python -m engine.profile`",
        controller.name,
    )
    return WithoutProfile(controller)
