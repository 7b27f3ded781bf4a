"""What the coming step will take by the hardware profile: without drafts, and as planned so far.

A price takes microseconds, and a decision looks at two plans, so nobody is asked about a plan that
drafts nothing twice.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from engine.protocol import Floats, Plan, View


def predicted_steps(view: View, by_class: NDArray[np.generic]) -> tuple[float, float]:
    """Seconds of an ordinary step and of one under the plan in force; 0 where nobody can tell.

    `by_class` [4, C] is that plan (`policies.actions.PlanByClass`). Trees count as large as
    planned, within the engine's limits. Reading prompts and the decision itself are left out, as of
    `engine.protocol.Pricing.step_s`.
    """
    if view.pricing is None:
        return 0.0, 0.0
    limits = view.limits
    by_classes = getattr(view.pricing, "class_steps_s", None)  # of `engine.protocol.PricedByClass`
    if by_classes is not None:
        tree = np.minimum(by_class[:3], _most(limits[1:]))
        steps_s: tuple[float, float] | None = by_classes(view.slo_class, tree)
        if steps_s is not None:
            return steps_s
    ordinary = _ordinary(limits.slots)
    ordinary_s = view.pricing.step_s(ordinary)
    planned = np.minimum(by_class[:3], _most(limits[1:])).astype(np.int64)
    if not planned[0].any():
        return ordinary_s, ordinary_s
    depth, width, nodes = planned.take(view.slo_class * view.active, axis=1)
    budget = limits.slots * limits.max_nodes
    return ordinary_s, view.pricing.step_s(Plan(depth, width, nodes, ordinary.margin, budget))


@cache
def _ordinary(slots: int) -> Plan:
    """Draft nothing; to be read."""
    nothing = np.zeros(slots, np.int64)
    return Plan(nothing, nothing, nothing, np.ones(slots), 0)


@cache
def _most(limits: tuple[int, ...]) -> Floats:
    """[3, 1] the deepest, widest and largest tree; to be read."""
    return np.array(limits, float)[:, None]
