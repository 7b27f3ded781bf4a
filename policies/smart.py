"""SMART: a node joins the tree where its marginal benefit over cost beats that of the tree so far.

Wang and Zhou 2026 (arXiv 2604.09731; research/slo_serving.md §3.13, and a public digest of the
paper, read in November 2026). A tree that costs C = C_draft + C_verify and from which L tokens are
expected is R = c · L / C times as fast as ordinary decoding at c seconds a token. To first order a
node with path probability f raises R where

    α · f / ΔC > L / C,   α = 0.8

c stands on both sides and has dropped out; α discounts what drafters think of themselves. The tree
grows layer by layer: who passes is expanded, and growth ends where nobody does. C_draft is a number
of seconds for each expanded node and C_verify a smooth convex curve over the tokens, both profiled.

*Ours*, where a beam and a batch ask for it:

- L and C are those of the whole batch, so n requests stand for L = n at first.
- After each draft step, `extend` tries the step's candidates, the likeliest first, and the requests
  of those that pass draft on, with the engine's whole beam. At the end `select` tries all
  candidates in the same way, with the drafting paid; since f falls along a path, what it takes are
  trees. With α = 1 and a convex curve, that selection is the one with the largest L / C of all.
- The smooth curve is the lower convex hull of 17 points of the profile's, since the rule stops at
  the first step of a staircase; theirs is a power-exponential fit to 5.
- Seconds for each expanded node are the profile's for all but the verification of the full beam,
  over the nodes that the beam expands; so ordinary work and catching up are shared out too.
- The digest's ΔL divides f by the number of paths; expected tokens are 1 + Σ f, so this does not.

Probe rule after depth 0: none is needed. The first draft step always runs, and nothing is
remembered from one iteration to the next.
"""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.kernels.paying import draft_paying, lower_hull, verify_paying
from engine.protocol import (
    Bools,
    Candidates,
    Controller,
    Floats,
    Ints,
    Limits,
    Plan,
    View,
    uniform_plan,
)
from policies.parameters import check_whole
from policies.spelling import spelled
from policies.step_prices import required_pricing

DISCOUNT = 0.8
DEPTH, WIDTH, NODES = 6, 4, 32
POINTS = 17  # of the cost curve


class Smart(Controller):
    """Trees that grow as long as a node makes the batch faster."""

    needs_profile = True

    def __init__(
        self,
        discount: float = DISCOUNT,
        depth: int = DEPTH,
        width: int = WIDTH,
        nodes: int = NODES,
    ) -> None:
        """α, and the largest tree: draft steps, beam width, nodes kept. Raises UserError."""
        self.name = spelled(
            "smart", Smart, discount=discount, depth=depth, width=width, nodes=nodes
        )
        if not 0.0 < discount <= 1.0:
            raise UserError(
                f"{self.name}: discount is {discount!r}; expected a number above 0 up to 1"
            )
        check_whole(self.name, 1, depth=depth, width=width, nodes=nodes)
        self.discount, self.depth, self.width, self.nodes = discount, depth, width, nodes
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """Nothing is learned from iteration to iteration; these are of the one under way."""
        self._points: dict[tuple[int, int], tuple[Ints, Floats]] = {}  # of the curve, by its ends
        self._size = np.zeros(limits.slots, np.int64)  # candidates before the layer under way
        self._curve = np.ones(1), np.ones(1)
        self._row_s = 0.0  # for each expanded node
        self._rows = 0  # expanded so far, roots included
        self._tokens = 1.0  # expected of the roots and the layers so far
        self._verified = 0  # nodes of these, roots included
        # The first calls load the kernels, which must not be charged to a decision.
        none, chances = uniform_plan(limits, 0, 1, 0), np.zeros((limits.slots, 1))
        lower_hull(np.ones(1), np.ones(1), np.zeros((2, 1)))
        self._draft(1, none, none.nodes, chances)
        self._keep(none.nodes > 0, none, none.nodes, chances)

    def plan(self, view: View) -> Plan:
        """The largest beam; `extend` ends it and `select` prunes it."""
        limits = view.limits
        depth, width = min(self.depth, limits.max_depth), min(self.width, limits.max_width)
        nodes = min(self.nodes, limits.max_nodes, width + (depth - 1) * width**2)
        plan = uniform_plan(limits, depth, width, nodes)
        if requests := int(np.count_nonzero(view.active)):
            self._price(view, plan, requests)
        return plan

    def _price(self, view: View, plan: Plan, requests: int) -> None:
        pricing = required_pricing(view, self.name)
        depth, width, nodes = (int(sizes[0]) for sizes in plan[:3])
        most = requests * (1 + nodes)
        if (requests, most) not in self._points:
            # Whole numbers, so that few tokens are priced without error.
            points = np.unique(np.rint(np.linspace(requests, most, POINTS)))
            self._points[requests, most] = points.astype(np.int64), points
        tokens, at = self._points[requests, most]
        verify_s = pricing.verify_s(tokens)
        corners = np.empty((2, len(at)))
        count = lower_hull(at, verify_s, corners)
        self._curve = corners[0, :count], corners[1, :count]
        rows = requests * (1 + (depth - 1) * width)
        self._row_s = (pricing.step_s(plan) - float(verify_s[-1])) / rows
        self._size = np.zeros(len(view.active), np.int64)
        self._rows = self._verified = requests
        self._tokens = float(requests)

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools:
        """Whose last layer has a node that is worth expanding."""
        return self._draft(step, plan, candidates.size, candidates.probability)

    def _draft(self, step: int, plan: Plan, size: Ints, probability: Floats) -> Bools:
        going = np.empty(len(size), np.bool_)
        self._tokens, self._verified, self._rows = draft_paying(
            self._size,
            size,
            probability,
            self._tokens,
            self.discount,
            *self._curve,
            self._verified,
            self._row_s,
            self._rows,
            step,
            plan.depth,
            plan.width,
            going,
        )
        return going

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """The nodes of all trees that pass, now that the drafting is paid."""
        return self._keep(view.active, plan, candidates.size, candidates.probability)

    def _keep(self, decoding: Bools, plan: Plan, size: Ints, probability: Floats) -> Bools:
        kept = np.zeros(probability.shape, np.bool_)
        verify_paying(
            decoding,
            size,
            probability,
            self.discount,
            *self._curve,
            self._row_s,
            self._rows,
            plan.nodes,
            kept,
        )
        return kept
