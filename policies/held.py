"""Decide every n iterations and hold the plan in between, re-fit to whoever runs by then.

A decision costs time, and some need several iterations to show what they are worth. In between,
requests come, go and change slots, so a held plan is one by request:

- a request that was there when it was decided keeps its depth, width, nodes and margin, in
  whichever slot it is now;
- a newcomer gets the middle of what was decided for its class, or for the batch where nobody of its
  class was there, rounded down; its margin is the most cautious of them;
- nodes and roots together stay within what they came to when it was decided: with more roots there
  are fewer nodes. A budget in steps (`Plan.budget_steps`) is the engine's to size anew every time.

`extend` and `select` are asked in every iteration, with the plan as it is then, and outcomes are
told as they come: who remembers requests by slot hears of a newcomer in the slot of one that was
preempted until it decides again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller, Floats, Ints, Limits, Plan, View
from policies.delegate import Delegate, delegating


class Held(Delegate):
    """A controller that decides now and then; see `held`, which makes one."""

    def __init__(self, controller: Controller, n: int) -> None:
        """n: iterations for which a decision stands, at least 1. Raises UserError."""
        super().__init__(controller)
        if type(n) is not int or n < 1:
            raise UserError(f"held: n is {n!r}; expected a whole number of iterations, at least 1")
        self.name = f"held({n}):{controller.name}"
        self.n = n
        self._left = 0
        self._decided: tuple[Plan, View] | None = None

    def reset(self, limits: Limits) -> None:
        """A new episode begins: a decision is due."""
        self._left, self._decided = 0, None
        super().reset(limits)

    def plan(self, view: View) -> Plan:
        """The controller's plan, of now or of up to n - 1 iterations ago."""
        if self._left == 0 or self._decided is None:
            self._left = self.n - 1
            plan = self.controller.plan(view)
            # Its own copies: whoever is handed a plan may write into it.
            self._decided = _owned(plan), view
            return plan
        self._left -= 1
        plan, then = self._decided
        return refit(plan, then, view)


def held(controller: Controller, n: int) -> Held:
    """`controller`, asked for a plan every `n` iterations."""
    return delegating(Held, controller)(controller, n)


def refit(plan: Plan, then: View, now: View) -> Plan:
    """What was planned for the requests of the view `then`, for those of `now`; fresh arrays."""
    slots = np.flatnonzero(then.active)
    slot_of = dict(zip(then.request[slots].tolist(), slots.tolist(), strict=True))
    runs = np.flatnonzero(now.active)
    source = np.array([slot_of.get(request, -1) for request in now.request[runs].tolist()], int)
    known, new = source >= 0, runs[source < 0]
    fitted: dict[str, Any] = {}
    for name in ("depth", "width", "nodes", "margin"):
        given: Ints | Floats = getattr(plan, name)
        fresh = given.copy()
        fresh[runs[known]] = given[source[known]]
        for slot in new.tolist():
            alike = slots[then.slo_class[slots] == now.slo_class[slot]]
            of = given[alike if len(alike) else slots]
            fresh[slot] = of.max() if name == "margin" else int(np.median(of))
        fitted[name] = fresh
    budget = plan.node_budget
    if budget < np.where(plan.depth > 0, plan.nodes, 0)[slots].sum():  # else it bound nobody
        budget = max(budget + len(slots) - len(runs), 0)
    return plan._replace(**fitted, node_budget=budget)


def _owned(plan: Plan) -> Plan:
    """The plan with arrays of its own."""
    return plan._replace(
        depth=np.array(plan.depth),
        width=np.array(plan.width),
        nodes=np.array(plan.nodes),
        margin=np.array(plan.margin, float),
    )
