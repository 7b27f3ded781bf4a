"""What the requests at hand would cost under a plan: a profile bound to a decision point.

Controllers find it as `View.pricing` (engine/protocol.py's `Pricing`); the engine itself predicts
every step with it and sizes node budgets where a plan asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import Bools, Floats, Ints, Plan

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.prefilling import Chunk


class BoundPricing(NamedTuple):
    """Prices of plans for the slots [S] that decode now."""

    profile: HardwareProfile
    decoding: Bools  # [S]
    context_tokens: Ints  # [S]
    undrafted_tokens: Ints  # [S] of the context, those that the drafter has not run

    def step_s(self, plan: Plan) -> float:
        """Seconds from the decision to the next one, controller and prompts not counted.

        Trees are priced as large as planned: who selects by himself may keep fewer nodes.
        """
        on = self.decoding
        if not on.any():
            return 0.0
        return self.profile.step_s(
            plan.depth[on],
            plan.width[on],
            plan.nodes[on],
            self.context_tokens[on],
            plan.node_budget,
            self.undrafted_tokens[on],
        )

    def verify_s(self, tokens: ArrayLike) -> Floats:
        """Seconds of a verification of so many nodes, roots included, over the contexts held."""
        return self.profile.verify_s(tokens, self._kv_tokens(), self._requests())

    def node_budget(self, multiple: float) -> int:
        """The most nodes, roots not counted, whose verification takes `multiple` one-token steps.

        Raises UserError for a multiple that is not above 0.
        """
        requests = self._requests()
        verified = self.profile.node_budget(multiple, self._kv_tokens(), requests)
        return max(verified - requests, 0)

    def _requests(self) -> int:
        return int(self.decoding.sum())

    def _kv_tokens(self) -> float:
        return float(self.context_tokens[self.decoding].sum())


def pricing_of(engine: Engine, decoding: Bools) -> BoundPricing | None:
    """Prices for the slots [S] that decode, None without a profile. Its arrays are fresh."""
    if engine.profile is None:
        return None
    context = np.where(decoding, engine.slots.context[0], 0)
    undrafted = np.where(decoding, context - engine.drafted_to, 0)
    return BoundPricing(engine.profile, decoding.copy(), context, undrafted)


def sized(engine: Engine, plan: Plan, decoding: Bools) -> Plan:
    """The plan with the node budget that it asks the engine for, where there is a profile."""
    if plan.budget_steps is None:
        return plan
    pricing = pricing_of(engine, decoding)
    if pricing is None:
        return plan
    budget = min(plan.node_budget, pricing.node_budget(plan.budget_steps))
    if budget > 0:
        return plan._replace(node_budget=budget)
    nothing = np.zeros_like(plan.nodes)  # a tree of which nothing may be kept need not be drafted
    return plan._replace(depth=nothing, nodes=nothing, node_budget=0)


def predicted_s(engine: Engine, plan: Plan, decoding: Bools) -> float:
    """The iteration under way by the profile, its controller aside; NaN without a profile."""
    pricing = pricing_of(engine, decoding)
    if pricing is None:
        return float("nan")
    return _prompts_s(pricing.profile, engine.chunks) + pricing.step_s(plan)


def _prompts_s(profile: HardwareProfile, chunks: Sequence[Chunk]) -> float:
    if not chunks:
        return 0.0
    tokens, before, ends_prompt, _ = zip(*chunks, strict=True)
    return float(profile.prefill_s(tokens, before, ends_prompt).sum())
