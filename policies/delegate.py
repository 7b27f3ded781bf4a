"""A controller that stands for another one: what it decides is passed on, a subclass adds its own.

The engine asks `extend` and `select` only of classes that define them, since asking costs time; so
which of the two a delegate has depends on whom it stands for.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from engine.protocol import Controller, Limits, Outcome, Plan, View

Kind = TypeVar("Kind", bound="Delegate")
OPTIONAL = ("extend", "select")


class Delegate(Controller):
    """Passes every call on to `controller`."""

    def __init__(self, controller: Controller) -> None:
        """Takes over the controller's name and traits."""
        self.controller = controller
        self.name, self.lossless = controller.name, controller.lossless
        self.decision_s, self.needs_profile = controller.decision_s, controller.needs_profile
        self.needs_divergence = controller.needs_divergence

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self.controller.reset(limits)

    def plan(self, view: View) -> Plan:
        """What the controller plans."""
        return self.controller.plan(view)

    def observe(self, outcome: Outcome) -> None:
        """The controller is told."""
        self.controller.observe(outcome)

    def pass_on(self, method: str, *arguments: Any) -> Any:
        """What the controller answers to `extend` or `select`, where a delegate has them."""
        return getattr(self.controller, method)(*arguments)


def defined(controller: Controller) -> list[str]:
    """Which of `extend` and `select` the controller answers by itself."""
    return [n for n in OPTIONAL if getattr(type(controller), n) is not getattr(Controller, n)]


def delegating(kind: type[Kind], *controllers: Controller) -> type[Kind]:
    """`kind` with those of `extend` and `select` passed on that one of `controllers` defines.

    What `kind` has of them itself stays.
    """
    own = [name for name in OPTIONAL if getattr(kind, name) is not getattr(Controller, name)]
    wanted = {name for controller in controllers for name in defined(controller)}
    methods = {name: _passed_on(name) for name in OPTIONAL if name in wanted and name not in own}
    return cast(type[Kind], type(kind.__name__, (kind,), methods)) if methods else kind


def _passed_on(name: str) -> Any:
    def method(self: Delegate, *arguments: Any) -> Any:
        return self.pass_on(name, *arguments)

    return method
