"""AdaServe: as many nodes as a request's objective needs, the rest where they earn most.

The rule is the paper's (EuroSys 2026, Algorithms 1 and 2; ALGORITHMS.md §5), in every iteration:

    need(r) = t / τ(r) - slack(r),   slack(r) = o(r) - l(r) / τ(r)

tokens are to be accepted for request r to be on its objective τ(r) when this iteration ends, where
t is what the hardware profile says it takes at the full budget. Drafted are d steps of a beam of w:

    d = clip(⌊B1 / (n + c1)⌋ - 1, Dmin, Dmax),   w = clip(⌊B2 / n⌋ + c2, 1, Wmax)

for n requests. Then requests, the largest need first, take their likeliest nodes until the root's
1 + Σf reaches min(need, d + 1); what is left of the budget goes to the likeliest nodes of all.

The paper's artifact ran these constants; where no other is stated they are the defaults here.

| parameter | Llama-70B, 8 GPUs | Qwen-32B, 4 GPUs | default |
| --- | --- | --- | --- |
| `verify_tokens` (B1) | 512 | 256 | what the budget comes to, roots included (ours) |
| `draft_tokens` (B2) | 96 | 80 | a quarter of B1 (ours) |
| `depth_min`, `depth_max`, `width_max` | 4, 8, 3 | 3, 5, 3 | 4, 8, 3 |
| `c1`, `c2` | by grid search, not published | likewise | 0, 0 (`tune.py` finds them) |

B1 and B2 are tokens that a machine passes in a step, so they follow this machine and not the
paper's: 512 tokens would make every one of sixteen requests draft as deep and wide as allowed.
"""

from __future__ import annotations

import inspect
from typing import ClassVar

import numpy as np

from engine.errors import UserError
from engine.kernels.slo_select import slo_select
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
from policies.tunable import Declared, Tunable

CANDIDATES = ("survivors", "scored")


class AdaServe(Controller):
    """The paper's controller; the numbers below count since the last `reset`.

    A selection is *infeasible* where the tokens expected of some request stay short of its need,
    which is not capped here: Algorithm 1 ends there, Algorithm 2 serves whom it can.
    """

    name = "adaserve"
    needs_profile = True

    TUNABLE: ClassVar[Declared] = {
        "budget": Tunable(1.02, 4.0, log=True),
        "c1": Tunable(0.0, 32.0),
        "c2": Tunable(-3, 3, whole=True),
        "depth_min": Tunable(1, 4, whole=True),
        "depth_max": Tunable(4, 8, whole=True),
        "width_max": Tunable(1, 8, whole=True),
    }

    def __init__(
        self,
        budget: float = 1.25,
        budget_tokens: int | None = None,
        c1: float = 0,
        c2: int = 0,
        verify_tokens: int | None = None,
        draft_tokens: int | None = None,
        depth_min: int = 4,
        depth_max: int = 8,
        width_max: int = 3,
        n_max: int | None = None,
        candidates: str = "survivors",
    ) -> None:
        """The module says what c1 to `width_max` are. Raises UserError for what cannot be.

        budget: one-token steps that a verification may take (ours: 1.25); budget_tokens: instead,
        so many verified tokens, roots included. n_max: most nodes a request takes towards its need
        (the paper gives no value; None: as many as the engine verifies). candidates: "survivors"
        are w a layer, as in the paper; "scored" takes all that the drafter scored, as EAGLE-2.
        """
        self.budget, self.budget_tokens = budget, budget_tokens
        self.c1, self.c2 = c1, c2
        self.verify_tokens, self.draft_tokens = verify_tokens, draft_tokens
        self.depth_min, self.depth_max, self.width_max = depth_min, depth_max, width_max
        self.n_max, self.candidates = n_max, candidates
        given = {label: getattr(self, label) for label in inspect.signature(type(self)).parameters}
        self.name = spelled(type(self).name, type(self), **given)
        self._check()
        self.decisions = 0
        """Selections."""
        self.infeasible = 0
        """Selections that were infeasible."""
        self.unmet = 0
        """Requests, summed over selections, whose need was not met."""

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self.decisions = self.infeasible = self.unmet = 0
        # The first call loads the kernel, which must not be charged to a decision.
        nobody, slots = np.zeros(0, np.int64), np.zeros(limits.slots, np.int64)
        depth, probability = np.zeros((limits.slots, 1), np.int64), np.zeros((limits.slots, 1))
        goal = np.zeros(limits.slots)
        slo_select(nobody, goal, 0, slots, slots, 0, 1, slots, depth, probability)

    def plan(self, view: View) -> Plan:
        """The same beam for all, and the budget for what is kept of it."""
        requests = max(int(np.count_nonzero(view.active)), 1)
        budget = self._node_budget(view, requests)
        if budget <= 0:  # nothing could be verified beside the roots
            return uniform_plan(view.limits, 0, 1, 0)._replace(node_budget=0)
        depth, width = self.beam(requests, budget, view.limits)
        drafted = depth * width
        if self.candidates == "scored":
            drafted = width + (depth - 1) * width**2
        nodes = min(drafted, view.limits.max_nodes)
        return uniform_plan(view.limits, depth, width, nodes)._replace(node_budget=budget)

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """Nodes for the needs, then for the throughput."""
        need = self.needs(view, plan)
        goal = np.minimum(self._goals(view, need), plan.depth + 1.0)
        width = np.asarray(plan.width, np.int64)
        kept, expected = slo_select(
            self._order(view, need),
            goal,
            self._most_to_goal(view, plan),
            np.asarray(plan.nodes, np.int64),
            width if self.candidates == "survivors" else width**2,
            plan.node_budget,
            view.limits.max_depth,
            candidates.size,
            candidates.depth,
            candidates.probability,
        )
        unmet = int(np.count_nonzero(view.active & (expected < need)))
        self.decisions += 1
        self.infeasible += unmet > 0
        self.unmet += unmet
        return kept

    def beam(self, requests: int, budget: int, limits: Limits) -> tuple[int, int]:
        """Depth and width for so many requests (equations 8 and 9), within the engine's limits.

        `budget` is in nodes, roots not counted.
        """
        verify, draft = self.verify_tokens, self.draft_tokens
        verify = budget + requests if verify is None else verify
        draft = verify // 4 if draft is None else draft
        depth = int(verify // (requests + self.c1)) - 1
        depth = min(max(depth, self.depth_min), self.depth_max, limits.max_depth)
        width = min(max(draft // requests + self.c2, 1), self.width_max, limits.max_width)
        return depth, width

    def needs(self, view: View, plan: Plan) -> Floats:
        """A(r) [S] in tokens, not capped; 0 without an objective and in idle slots."""
        bound = view.active & np.isfinite(view.tpot_objective_s)
        objective_s = np.where(bound, view.tpot_objective_s, 1.0)
        return np.where(bound, self._iteration_s(view, plan) / objective_s - view.slack_tokens, 0.0)

    def _iteration_s(self, view: View, plan: Plan) -> float:
        """t: seconds that the iteration under way will take at its full budget."""
        return required_pricing(view, self.name).step_s(plan)

    def _goals(self, view: View, need: Floats) -> Floats:
        """What the SLO phase serves [S]."""
        return need

    def _order(self, view: View, need: Floats) -> Ints:
        """Slots that decode, the largest need first."""
        slots = view.active.nonzero()[0]
        return slots[(-need[slots]).argsort(kind="stable")]

    def _most_to_goal(self, view: View, plan: Plan) -> int:
        """Most nodes of a request in the SLO phase."""
        return view.limits.max_nodes if self.n_max is None else self.n_max

    def _node_budget(self, view: View, requests: int) -> int:
        if self.budget_tokens is not None:
            return self.budget_tokens - requests
        return required_pricing(view, self.name).node_budget(self.budget)

    def _check(self) -> None:
        """Raise UserError for a parameter that cannot be."""
        if not 0 < self.budget < float("inf"):
            raise UserError(
                f"{self.name}: budget is {self.budget}; expected one-token steps above 0"
            )
        if not 0 <= self.c1 < float("inf"):
            raise UserError(f"{self.name}: c1 is {self.c1}; expected a number of at least 0")
        if type(self.c2) is not int:
            raise UserError(f"{self.name}: c2 is {self.c2!r}; expected a whole number")
        labels = "depth_min", "depth_max", "width_max"
        optional = "budget_tokens", "verify_tokens", "draft_tokens", "n_max"
        given = {label: getattr(self, label) for label in labels + optional}
        unset = {label for label in optional if given[label] is None}
        check_whole(self.name, 1, **{k: v for k, v in given.items() if k not in unset})
        if self.depth_min > self.depth_max:
            raise UserError(
                f"{self.name}: depth_min is {self.depth_min} and depth_max {self.depth_max}; "
                "expected the first not to be above the second"
            )
        if self.candidates not in CANDIDATES:
            raise UserError(
                f"{self.name}: candidates is {self.candidates!r}; expected "
                f"{' or '.join(CANDIDATES)}"
            )
