"""What the requests at hand would cost under a plan: a profile bound to a decision point.

Controllers find it as `View.pricing` (engine/protocol.py's `Pricing`); the engine itself predicts
every step with it and sizes node budgets where a plan asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from engine.kernels.class_steps import class_steps
from engine.kernels.price_table import price_table
from engine.kernels.step_rows import step_rows
from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import Bools, Floats, Ints, Plan, PriceTable

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.prefilling import Chunk


@dataclass(frozen=True, eq=False)
class BoundPricing:
    """Prices of plans for the slots [S] that decode now; what plans share is summed up once."""

    profile: HardwareProfile
    decoding: Bools  # [S]
    context_tokens: Ints  # [S]
    undrafted_tokens: Ints  # [S] of the context, those that the drafter has not run

    def step_s(self, plan: Plan) -> float:
        """Seconds from the decision to the next one, controller and prompts not counted.

        Trees are priced as large as planned: who selects by himself may keep fewer nodes.
        """
        if self.requests == 0:
            return 0.0
        kept, drafting, drafting_kv_tokens, rows = step_rows(
            self.decoding,
            np.asarray(plan.depth, np.int64),
            np.asarray(plan.width, np.int64),
            np.asarray(plan.nodes, np.int64),
            self.context_tokens,
            self.undrafted_tokens,
        )
        return self.profile.passes_s(
            self.requests,
            self.kv_tokens,
            min(kept, plan.node_budget),
            rows.tolist(),
            drafting,
            float(drafting_kv_tokens),
        )

    def class_steps_s(self, slo_class: Ints, tree: Floats) -> tuple[float, float] | None:
        """Of an ordinary step and one with trees [3, C]; None where a pass is not tabulated."""
        steps_s: tuple[float, float] = class_steps(
            *self.profile.passes,
            self.decoding,
            self.context_tokens,
            self.undrafted_tokens,
            slo_class,
            np.asarray(tree, float),
        )
        return None if steps_s[1] != steps_s[1] else steps_s

    def verify_s(self, tokens: ArrayLike) -> Floats:
        """Seconds of a verification of so many nodes, roots included, over the contexts held."""
        count = np.asarray(tokens)
        if count.dtype == np.int64:
            return self.profile.verify.of_whole(count, self.kv_tokens, self.requests)
        return self.profile.verify_s(count, self.kv_tokens, self.requests)

    def node_budget(self, multiple: float) -> int:
        """The most nodes, roots not counted, whose verification takes `multiple` one-token steps.

        Raises UserError for a multiple that is not above 0.
        """
        verified = self.profile.node_budget(multiple, self.kv_tokens, self.requests)
        return max(verified - self.requests, 0)

    def table(self, nodes: int, widths: Ints) -> PriceTable:
        """The parts of a step by size; of the first draft step's curve, the line to its far end."""
        profile, slots = self.profile, len(self.decoding)
        verify_s, verify_joules, first_s, next_s, draft_watts, ordinary_s = price_table(
            *profile.tabulated(max(slots + nodes, int(widths[-1]) * slots)),
            self.decoding,
            self.context_tokens,
            self.undrafted_tokens,
            nodes,
            widths,
        )
        return PriceTable(
            verify_s,
            verify_joules,
            first_s,
            next_s,
            draft_watts,
            self.undrafted_tokens,
            ordinary_s,
            profile.prompt_chunks_s,
        )

    @cached_property
    def requests(self) -> int:
        """How many decode."""
        return int(np.count_nonzero(self.decoding))

    @cached_property
    def kv_tokens(self) -> float:
        """Of all their contexts together."""
        return float(self.context_tokens.sum(where=self.decoding))


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
