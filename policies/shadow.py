"""Run another controller beside the active one, on the same views, and compare what they plan.

The other one never acts, and whatever it raises stays here, counted and logged. It is asked after
the active one, on copies, so it can change nothing; but it runs in the same thread, so on a live
engine its time is charged with the decision. It is told the outcomes of plans that were not its
own: one that learns from what its plans bring learns from another's here. `extend` and `select` are
not asked of it, since trees are drafted to the active one's plan.
"""

from __future__ import annotations

import logging
import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from engine.limits import clip_plan
from engine.protocol import Controller, Ints, Limits, Outcome, Plan, View
from policies.delegate import Delegate, delegating
from policies.registry import make

LOG = logging.getLogger("draftgym.shadow")
TREE = ("depth", "width", "nodes")
Told = TypeVar("Told", View, Outcome)


class Comparison(NamedTuple):
    """The other's plans against the active one's, since the last `reset`. NaN of nothing."""

    decisions: int
    """Asked of the active one."""
    compared: int
    """Of them, answered by the other with a plan that the engine would take."""
    errors: int
    """Times that the other raised something."""
    unpriced: int
    """Decisions at which it could not be asked for want of a hardware profile."""
    equal_plans: float
    """Share of compared decisions in which every request had the same tree and margin."""
    equal_trees: float
    """Share of requests that had, over all of them."""
    depth_difference: float
    """The other's less the active one's, mean over requests."""
    width_difference: float
    """Likewise, over requests for which both draft."""
    nodes_difference: float
    step_s: float
    """Mean of the active one's steps as the hardware profile predicts them."""
    other_step_s: float
    """Mean of the other's."""


class Shadow(Delegate):
    """The active controller, and another in its shadow; see `shadow`, which makes one."""

    def __init__(self, controller: Controller, other: Controller) -> None:
        """`controller` acts."""
        super().__init__(controller)
        self.other = other
        self.needs_divergence = controller.needs_divergence or other.needs_divergence
        self._begin()

    def _begin(self) -> None:
        self._decisions = self._errors = self._unpriced = 0
        self._compared = self._equal = 0
        self._sums = np.zeros(8)  # over compared decisions, of what `_compare` tells
        self._told: set[str] = set()
        self._is_reset = True

    def reset(self, limits: Limits) -> None:
        """A new episode begins, and a new comparison."""
        super().reset(limits)
        self._begin()
        try:
            self.other.reset(limits)
        except Exception as error:  # whatever it raises is no business of the active one
            self._is_reset = False
            self._note("reset", error)

    def plan(self, view: View) -> Plan:
        """The active one's plan."""
        seen = _copied(view)  # before anybody could have written into it
        plan = self.controller.plan(view)
        self._decisions += 1
        if self._is_reset and self.other.needs_profile and view.pricing is None:
            self._unpriced += 1
        elif self._is_reset:
            try:
                told = _compare(plan, self.other.plan(seen), view)
                self._compared += 1
                self._equal += told[0] == told[1]
                self._sums += told
            except Exception as error:  # likewise; also from a plan that cannot be compared
                self._note("plan", error)
        return plan

    def observe(self, outcome: Outcome) -> None:
        """Both are told."""
        copied = _copied(outcome)
        self.controller.observe(outcome)
        if self._is_reset:
            try:
                self.other.observe(copied)
            except Exception as error:  # likewise
                self._note("observe", error)

    def comparison(self) -> Comparison:
        """What came of it so far."""
        requests, same, both, depth, width, nodes, step_s, other_s = self._sums.tolist()
        compared = self._compared
        return Comparison(
            self._decisions,
            compared,
            self._errors,
            self._unpriced,
            _mean(self._equal, compared),
            _mean(same, requests),
            _mean(depth, requests),
            _mean(width, both),
            _mean(nodes, requests),
            _mean(step_s, compared),
            _mean(other_s, compared),
        )

    def _note(self, where: str, error: Exception) -> None:
        self._errors += 1
        kind = f"{self.other.name} raised {type(error).__name__} in {where}"
        if kind not in self._told:
            self._told.add(kind)
            LOG.warning("shadow: %s: %s", kind, error)


def shadow(controller: Controller, other: str) -> Shadow:
    """`controller`, with the one that `other` names in its shadow. Raises UserError."""
    made = delegating(Shadow, controller)(controller, make(other))
    made.name = f"shadow({other!r}):{controller.name}"
    return made


def _compare(plan: Plan, other: Plan, view: View) -> tuple[float, ...]:
    """Requests, those with equal trees, those for which both draft, sums of differences, prices."""
    ours, theirs = _as_served(plan, view), _as_served(other, view)
    on = view.active
    both = on & (ours.depth > 0) & (theirs.depth > 0)
    off = (ours.depth == 0) & (theirs.depth == 0)
    same = (np.asarray(ours.margin) == np.asarray(theirs.margin)) & on
    same &= off | (_trees(ours) == _trees(theirs)).all(0)
    differences = _trees(theirs) - _trees(ours)
    depth, nodes = differences[0][on].sum(), differences[2][on].sum()
    seconds = [math.nan, math.nan]
    if view.pricing is not None:
        seconds = [view.pricing.step_s(p) for p in (ours, theirs)]
    width = differences[1][both].sum()
    return (on.sum(), same.sum(), both.sum(), depth, width, nodes, *seconds)


def _as_served(plan: Plan, view: View) -> Plan:
    """As the engine takes it: clipped, no nodes without depth, and its budget in nodes."""
    inside, _ = clip_plan(plan, view.limits, view.active, view.remaining_tokens)
    budget = int(plan.node_budget)
    if plan.budget_steps is not None and view.pricing is not None:
        budget = min(budget, view.pricing.node_budget(plan.budget_steps))
    nodes = np.where(inside.depth > 0, inside.nodes, 0)
    return inside._replace(nodes=nodes, node_budget=max(budget, 0), budget_steps=None)


def _trees(plan: Plan) -> Ints:
    """Depth, width and nodes [3, S]."""
    return np.stack([getattr(plan, name) for name in TREE])


def _copied(of: Told) -> Told:
    """The same with arrays of its own."""
    arrays: dict[str, Any] = {
        k: v.copy() for k, v in of._asdict().items() if isinstance(v, np.ndarray)
    }
    return of._replace(**arrays)


def _mean(total: float, count: float) -> float:
    return total / count if count else math.nan
