"""Prices of a step by class are those of the plans that stand for them, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels.class_steps import class_steps
from engine.profile.hardware_profile import PASSES_TABULATED
from engine.profile.pricing import BoundPricing
from engine.profile.published import open_profile
from engine.protocol import Ints, Plan

SLOTS, CLASSES = 9, 3


def drawn(seed: int) -> tuple[BoundPricing, Ints, Ints]:
    """Prices, classes [S] (idle slots have none that exists) and trees [3, C]."""
    rng = np.random.default_rng(seed)
    decoding = rng.random(SLOTS) < (0.7 if seed else 0.0)
    context = np.where(decoding, rng.integers(1, 400, SLOTS), 0)
    undrafted = np.minimum(rng.integers(1, 9, SLOTS), context)
    slo_class = np.where(decoding, rng.integers(0, CLASSES, SLOTS), 77)
    sizes = (rng.integers(low, high, CLASSES) for low, high in ((0, 5), (1, 5), (0, 20)))
    tree = np.stack(list(sizes))
    profile = open_profile("llama-8b-a100")
    return BoundPricing(profile, decoding, context, undrafted), slo_class, tree


def of_plan(pricing: BoundPricing, slo_class: Ints, tree: Ints) -> float:
    """Seconds of a step as plans are priced."""
    of_class = np.where(pricing.decoding, slo_class, 0)
    depth, width, nodes = tree[:, of_class]
    return pricing.step_s(Plan(depth, width, nodes, np.ones(SLOTS), 10**6))


@pytest.mark.parametrize("seed", range(60))
def test_they_are_the_plans_own(seed: int) -> None:
    pricing, slo_class, tree = drawn(seed)
    nothing = of_plan(pricing, slo_class, np.zeros_like(tree))
    by_class = tree.astype(float)
    assert pricing.class_steps_s(slo_class, by_class) == (
        nothing,
        of_plan(pricing, slo_class, tree),
    )
    twin = class_steps.py_func(
        *pricing.profile.passes, pricing.decoding, pricing.context_tokens,
        pricing.undrafted_tokens, slo_class, by_class,
    )  # fmt: skip
    assert twin == pricing.class_steps_s(slo_class, by_class)


def test_a_pass_that_is_not_tabulated_is_left_to_plans() -> None:
    pricing, slo_class, _ = drawn(1)
    behind = np.where(pricing.decoding, PASSES_TABULATED, 0)
    pricing = BoundPricing(pricing.profile, pricing.decoding, behind, behind)
    assert pricing.class_steps_s(slo_class, np.full((3, CLASSES), 2.0)) is None
