"""SpecDec++'s stopping rule: draft on until some drafted token has probably been rejected.

Huang et al. 2024 (arXiv 2405.19715; Kaffaljidhmah2/SpecDec_pp, specdec_pp/hf_generation.py): of a
chain of drafted tokens with predicted acceptance ĉ_1 … ĉ_k,

    stop after step k where 1 − ĉ_1 ĉ_2 ⋯ ĉ_k > h, but never before `shortest` nor after `longest`

h is a threshold of [0, 1] that the authors sweep; 0.3 within 2 and 20 steps is their example. They
take ĉ from a head that was trained on the drafter's hidden states and knows a token one step later
only. Here ĉ_i is the drafter's own probability of the token (*ours*), known at once, so that the
product is the path probability of the chain.

Probe rule after depth 0: none is needed. At least one step is drafted whatever was predicted, and
nothing is remembered from one iteration to the next.
"""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Candidates, Controller, Floats, Plan, View, uniform_plan
from policies.spelling import spelled


def rejection(candidates: Candidates) -> Floats:
    """Predicted probability [S] that not all of a chain is accepted; 0 where nothing is drafted."""
    last = np.maximum(candidates.size - 1, 0)
    reached = candidates.probability[np.arange(len(last)), last]
    return np.where(candidates.size > 0, 1.0 - reached, 0.0)


class SpecdecStop(Controller):
    """Chains that end where a rejection has become too likely."""

    def __init__(self, threshold: float = 0.3, shortest: int = 2, longest: int = 20) -> None:
        """threshold: h; shortest and longest: draft steps, both included."""
        self.name = spelled(
            "specdec-stop", SpecdecStop, threshold=threshold, shortest=shortest, longest=longest
        )
        if not 0.0 <= threshold <= 1.0:
            raise UserError(
                f"{self.name}: threshold is {threshold!r}; expected a probability of [0, 1]"
            )
        if type(shortest) is not int or type(longest) is not int or not 1 <= shortest <= longest:
            raise UserError(
                f"{self.name}: shortest is {shortest!r} and longest {longest!r}; expected whole "
                "numbers, 1 ≤ shortest ≤ longest"
            )
        self.threshold, self.shortest, self.longest = threshold, shortest, longest

    def plan(self, view: View) -> Plan:
        """A chain of the longest length; `extend` ends it."""
        depth = min(self.longest, view.limits.max_depth)
        return uniform_plan(view.limits, depth, width=1, nodes=min(depth, view.limits.max_nodes))

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools:
        """Whose chains are too short still, or likely enough to be accepted as a whole."""
        return (rejection(candidates) <= self.threshold) | (step < self.shortest)
