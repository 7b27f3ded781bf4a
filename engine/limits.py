"""Bring a controller's plan inside what the engine can do, and count what had to change."""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Ints, Limits, Plan


def clip_plan(plan: Plan, limits: Limits, decoding: Bools, remaining: Ints) -> tuple[Plan, int]:
    """The plan within limits, and how many entries of decoding slots lay outside.

    A tree deeper than the tokens a request may still emit is cut without counting: no controller
    can know it better. Margins and budgets in steps of NaN, 0 or less are an error, since no
    clipping can guess what was meant.
    """
    if plan.budget_steps is not None and not plan.budget_steps > 0:
        raise UserError(
            f"the plan's budget_steps is {plan.budget_steps}; expected a number of one-token steps "
            "above 0, or None for no such budget"
        )
    margin = np.asarray(plan.margin, float)
    if margin.shape != decoding.shape:
        raise UserError(f"the plan's margin has shape {margin.shape}, expected {decoding.shape}")
    if not (margin[decoding] > 0).all():
        worst = margin[decoding].min()  # NaN where there is one
        raise UserError(
            f"the plan's acceptance margin is {worst}; expected a number above 0, 1 is lossless"
        )
    bounds = (
        ("depth", 0, limits.max_depth),
        ("width", 1, limits.max_width),
        ("nodes", 0, limits.max_nodes),
    )
    outside = 0
    clipped = {}
    for name, low, high in bounds:
        given = np.asarray(getattr(plan, name), np.int64)
        if given.shape != decoding.shape:
            raise UserError(f"the plan's {name} has shape {given.shape}, expected {decoding.shape}")
        clipped[name] = np.clip(given, low, high)
        outside += int((clipped[name] != given)[decoding].sum())
    deepest = np.maximum(remaining - 1, 0)
    clipped["depth"] = np.where(decoding, np.minimum(clipped["depth"], deepest), 0)
    # A tree without nodes need not be drafted.
    clipped["depth"] = np.where(clipped["nodes"] == 0, 0, clipped["depth"])
    inside = plan._replace(depth=clipped["depth"], width=clipped["width"], nodes=clipped["nodes"])
    return inside, outside


def mask_of(method: str, answer: Bools, shape: tuple[int, ...]) -> Bools:
    """A controller's answer as a mask of `shape`; raises UserError when it is none."""
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise UserError(
            f"the controller's {method}() gave {mask.dtype} of shape {mask.shape}; "
            f"expected bool of shape {shape}"
        )
    return mask
