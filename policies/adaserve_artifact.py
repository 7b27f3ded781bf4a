"""AdaServe as its public code has it, where that departs from the paper.

Read in `src/runtime/request_manager.cc` of flexflow/flexflow-serve (branch `specscheduler` as of
January 2025; research/slo_serving.md §1.7); the artifact's last state may differ. Against
`adaserve`:

- a need is at least 1, and the iteration in it is taken for 1.05 times as long as predicted;
- the SLO phase serves the smallest need first;
- and only requests whose objective is a multiple of the unloaded time per token: one in
  milliseconds (chat, summarization in the paper) has no SLO phase;
- a request takes at most ⌊1.2 · B / n⌋ nodes there, B the tokens of a verification;
- depth and width follow the load without c1 and c2.

There the two times of an iteration were constants from the command line; here they are predicted.
"""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats, Ints, Plan, View
from policies.adaserve import AdaServe

SHARE = 1.2


class AdaServeArtifact(AdaServe):
    """The public code's variant; counts as `AdaServe` does."""

    name = "adaserve-artifact"

    def __init__(
        self,
        budget: float = 1.25,
        budget_tokens: int | None = None,
        verify_tokens: int | None = None,
        draft_tokens: int | None = None,
        depth_min: int = 4,
        depth_max: int = 8,
        width_max: int = 3,
        correction: float = 1.05,
        relative: tuple[str, ...] = ("coding",),
    ) -> None:
        """As `AdaServe`, with `correction` of the iteration's time, and the names of the classes
        whose objective is relative; others have an absolute one. Raises UserError.
        """
        self.correction, self.relative = correction, relative
        super().__init__(
            budget,
            budget_tokens,
            verify_tokens=verify_tokens,
            draft_tokens=draft_tokens,
            depth_min=depth_min,
            depth_max=depth_max,
            width_max=width_max,
        )
        if not 0 < correction < float("inf"):
            raise UserError(f"{self.name}: correction is {correction}; expected a number above 0")
        if type(relative) is not tuple or not all(isinstance(name, str) for name in relative):
            raise UserError(
                f"{self.name}: relative is {relative!r}; expected class names as in ('coding',)"
            )

    def needs(self, view: View, plan: Plan) -> Floats:
        """As the paper's [S], with the iteration taken for longer and at least 1."""
        bound = view.active & np.isfinite(view.tpot_objective_s)
        return np.where(bound, np.maximum(super().needs(view, plan), 1.0), 0.0)

    def _iteration_s(self, view: View, plan: Plan) -> float:
        return self.correction * super()._iteration_s(view, plan)

    def _goals(self, view: View, need: Floats) -> Floats:
        relative = np.array([name in self.relative for name in view.class_names])
        return np.where(relative[np.where(view.active, view.slo_class, 0)], need, 0.0)

    def _order(self, view: View, need: Floats) -> Ints:
        slots = view.active.nonzero()[0]
        return slots[need[slots].argsort(kind="stable")]

    def _most_to_goal(self, view: View, plan: Plan) -> int:
        requests = max(int(np.count_nonzero(view.active)), 1)
        return int(SHARE * (plan.node_budget + requests) / requests)
