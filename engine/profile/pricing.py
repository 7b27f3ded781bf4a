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

from engine.kernels.step_rows import step_rows
from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import PROMPT_CHUNKS, Bools, Floats, Ints, Plan, PriceTable

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
        profile, requests, kv_tokens = self.profile, self.requests, self.kv_tokens
        tokens = requests + np.arange(nodes + 1)
        verify_s = profile.verify.of_whole(tokens, kv_tokens, requests)
        host_s = profile.host.of_whole(tokens, kv_tokens, requests)
        one, most = float(requests), float(max(self.undrafted_tokens.sum(), requests + 1))
        least_s, most_s = (
            profile.draft_first.at(rows, kv_tokens, requests) for rows in (one, most)
        )
        row_s = max(most_s - least_s, 0.0) / (most - one)
        drafting = np.arange(len(self.decoding) + 1)
        contexts: Floats = drafting.astype(np.float64) * (kv_tokens / max(requests, 1))
        next_s = profile.draft_next.of_whole(np.outer(widths, drafting), contexts, drafting) * (
            drafting > 0
        )
        watts = profile.watts(tokens)
        return PriceTable(
            verify_s=verify_s + host_s,
            verify_joules=watts * verify_s + (profile.power.idle_watts or watts[0]) * host_s,
            draft_first_s=np.array([least_s - row_s * one, row_s]),
            draft_next_s=next_s,
            draft_watts=profile.power.stages.get("draft", float(watts[0])),
            undrafted_tokens=self.undrafted_tokens,
            ordinary_s=profile.verify.of_whole(drafting, contexts, drafting)
            + profile.host.of_whole(drafting, contexts, drafting),
            prefill_s=profile.prefill_s(PROMPT_CHUNKS, 0, False),
        )

    @cached_property
    def requests(self) -> int:
        """How many decode."""
        return int(np.count_nonzero(self.decoding))

    @cached_property
    def kv_tokens(self) -> float:
        """Of all their contexts together."""
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
