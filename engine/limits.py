"""Bring a controller's plan inside what the engine can do, and count what had to change."""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Ints, Limits, Plan

LEAST = np.array([[0], [1], [0]])
"""Depth, width and nodes."""


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
    given = np.empty((3, len(decoding)), np.int64)
    for row, name in zip(given, ("depth", "width", "nodes"), strict=True):
        values = np.asarray(getattr(plan, name))
        if values.shape != decoding.shape:
            raise UserError(
                f"the plan's {name} has shape {values.shape}, expected {decoding.shape}"
            )
        row[:] = values
    sizes = np.minimum(np.maximum(given, LEAST), np.array(limits[1:])[:, None])
    outside = int(np.count_nonzero((sizes != given) & decoding))
    depth, width, nodes = sizes
    # Nothing is drafted that may not be emitted, nor a tree without nodes.
    np.minimum(depth, np.maximum(remaining - 1, 0), out=depth)
    depth[~decoding | (nodes == 0)] = 0
    return plan._replace(depth=depth, width=width, nodes=nodes), outside


def mask_of(method: str, answer: Bools, shape: tuple[int, ...]) -> Bools:
    """A controller's answer as a mask of `shape`; raises UserError when it is none."""
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise UserError(
            f"the controller's {method}() gave {mask.dtype} of shape {mask.shape}; "
            f"expected bool of shape {shape}"
        )
    return mask
