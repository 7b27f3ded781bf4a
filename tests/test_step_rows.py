"""A plan's rows as the kernel counts them: its twin, and what the profile makes of a plan alone."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels.step_rows import step_rows
from engine.profile.pricing import BoundPricing
from engine.profile.published import open_profile
from engine.protocol import Plan
from tests.twins import step_rows as twin

SLOTS = 7


def drawn(seed: int) -> tuple[np.ndarray, ...]:
    """Arguments of the kernel; some slots are idle, some do not draft."""
    rng = np.random.default_rng(seed)
    decoding = rng.random(SLOTS) < 0.7
    context = np.where(decoding, rng.integers(1, 400, SLOTS), 0)
    depth, nodes = rng.integers(0, 5, SLOTS), rng.integers(0, 20, SLOTS)
    undrafted = np.minimum(rng.integers(1, 9, SLOTS), context)
    return decoding, depth, rng.integers(1, 5, SLOTS), nodes, context, undrafted


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_the_twins(seed: int) -> None:
    *counts, rows = step_rows(*drawn(seed))
    *expected, by_step = twin.step_rows(*(a.tolist() for a in drawn(seed)))
    assert (counts, rows.tolist()) == (expected, by_step)


@pytest.mark.parametrize("budget", (10_000, 12))
@pytest.mark.parametrize("seed", range(20))
def test_a_price_is_the_profiles_own(seed: int, budget: int) -> None:
    decoding, depth, width, nodes, context, undrafted = drawn(seed)
    decoding[0] |= not decoding.any()
    profile = open_profile("llama-8b-a100")
    plan = Plan(depth, width, nodes, np.ones(SLOTS), budget)
    priced = BoundPricing(profile, decoding, context, undrafted).step_s(plan)
    alone = profile.step_s(
        depth[decoding],
        width[decoding],
        nodes[decoding],
        context[decoding],
        node_budget=budget,
        catch_up_tokens=undrafted[decoding],
    )
    assert priced == alone
