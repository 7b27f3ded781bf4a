"""Round another controller's trees to the sizes that the device has CUDA graphs for.

A verification of a size between two tiers is padded to the upper one and pays for it, so the nodes
that it lacks could be had for nothing, and the last ones it has cost a whole tier. The rule, for
the tokens of a batch, its roots included:

- down to the largest tier not above what was planned,
- but up to the next one above where that costs nothing: the roots alone would be padded to it, or
  the hardware profile prices it within one per cent of the lower one.

A batch that was to speculate goes on speculating, so the tier must hold a node beside the roots;
the next one above is taken where the lower one does not. Where no tier has room for such a node,
and where the device has no tiers at all (`View.tiers` is None), the plan is left as it is. Text
never changes by it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from engine.limits import mask_of
from engine.protocol import Bools, Candidates, Controller, Ints, Plan, View
from policies.delegate import Delegate, defined, delegating

FREE = 0.01  # share of the lower tier's price that counts as nothing: timing noise


class Tiered(Delegate):
    """A controller whose plans are rounded; see `tiered`, which makes one."""

    def __init__(self, controller: Controller) -> None:
        """Wraps `controller`, whose own promises hold."""
        super().__init__(controller)
        self.name = f"tiered:{controller.name}"

    def plan(self, view: View) -> Plan:
        """The controller's plan, its nodes rounded over the batch."""
        return round_plan(self.controller.plan(view), view)


class Selecting(Tiered):
    """For a controller that selects nodes."""

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        """The controller's selection, rounded down: its least likely nodes give way."""
        mask = self.controller.select(view, plan, candidates)
        return mask if mask is None else round_selection(mask, view, candidates)


def tiered(controller: Controller) -> Tiered:
    """`controller`, rounded."""
    kind = Selecting if "select" in defined(controller) else Tiered
    return delegating(kind, controller)(controller)


def round_plan(plan: Plan, view: View) -> Plan:
    """The plan with as many nodes over the batch as the rule at the top says.

    Down, the node budget falls and the engine drops the least likely nodes. Up, speculating
    requests get nodes in turn, as far as their beams draft that many.
    """
    if not view.tiers:
        return plan
    drafted = _drafted(plan, view)
    nodes = np.minimum(np.clip(plan.nodes, 0, view.limits.max_nodes), drafted)
    budget = plan.node_budget
    if plan.budget_steps is not None and plan.budget_steps > 0 and view.pricing is not None:
        budget = min(budget, view.pricing.node_budget(plan.budget_steps))
    planned, roots = min(int(nodes.sum()), budget), int(view.active.sum())
    if planned <= 0:
        return plan
    wanted = round_tokens(roots, roots + planned, view) - roots
    if wanted == planned:
        return plan
    more = _hand_out(nodes, np.where(nodes > 0, drafted, 0), wanted - int(nodes.sum()))
    return plan._replace(
        nodes=np.where(more > nodes, more, plan.nodes), node_budget=wanted, budget_steps=None
    )


def round_selection(mask: Bools, view: View, candidates: Candidates) -> Bools:
    """The mask [S, N], closed under parents and without its least likely nodes above a tier."""
    if not view.tiers:
        return mask
    mask = mask_of("select", mask, candidates.parent.shape)
    real = np.arange(mask.shape[1]) < candidates.size[:, None]
    mask = mask & real & view.active[:, None]
    top, parent = candidates.parent < 0, np.maximum(candidates.parent, 0)
    for _ in range(view.limits.max_depth):
        mask &= top | np.take_along_axis(mask, parent, axis=1)
    roots, kept = int(view.active.sum()), int(mask.sum())
    lower = _at_most(view.tiers, roots + kept)
    if lower is None or lower <= roots:
        return mask
    # Path probabilities fall along a path, so the likeliest nodes of a tree are a tree.
    slots, nodes = np.nonzero(mask)
    of = slots, nodes
    likeliest = np.lexsort((candidates.depth[of], -candidates.probability[of]))
    out = likeliest[lower - roots :]
    mask[slots[out], nodes[out]] = False
    return mask


def round_tokens(roots: int, tokens: int, view: View) -> int:
    """The tier for a batch of `tokens`, `roots` of them roots; `tokens` itself where none fits."""
    tiers = view.tiers or ()
    least = bisect_left(tiers, roots + 1)  # the first tier that holds a node beside the roots
    if least == len(tiers):
        return tokens
    at = max(bisect_right(tiers, tokens) - 1, least)
    if view.pricing is not None and tiers[at] < tokens and at + 1 < len(tiers):
        lower_s, upper_s = view.pricing.verify_s(tiers[at : at + 2])
        at += bool(upper_s <= (1 + FREE) * lower_s)
    return tiers[at]


def _at_most(tiers: tuple[int, ...], tokens: int) -> int | None:
    """The largest tier not above `tokens`."""
    at = bisect_right(tiers, tokens)
    return tiers[at - 1] if at else None


def _drafted(plan: Plan, view: View) -> Ints:
    """Candidates [S] that the planned beams draft, within the engine's limits."""
    limits = view.limits
    deepest = np.minimum(limits.max_depth, np.maximum(view.remaining_tokens - 1, 0))
    depth = np.where(view.active, np.clip(plan.depth, 0, deepest), 0)
    width = np.clip(plan.width, 1, limits.max_width)
    return np.where(depth > 0, width + (depth - 1) * width**2, 0)


def _hand_out(nodes: Ints, room: Ints, extra: int) -> Ints:
    """Nodes [S] with `extra` more, one after another to slots below their `room` [S]."""
    nodes = nodes.copy()
    while extra > 0 and len(some := np.flatnonzero(nodes < room)[:extra]):
        nodes[some] += 1
        extra -= len(some)
    return nodes
