"""From actions to plans and from tallies to rewards, for all environments of a fleet at once.

The rules are `policies.actions.ActionTable`'s and `envs.reward.GoodputReward`'s; a test holds each
to its own. In NumPy these few operations cost more than serving the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from engine.protocol import Bools, Floats, Ints
from engine.replay.fleet.state import FleetPlan

DIMENSIONS = 4  # entries of an action for each class; the last is the margin, which is always 1


class Tiers(NamedTuple):
    """What the entries of an action choose from."""

    depths: Ints
    widths: Ints
    nodes: Ints


class Pay(NamedTuple):
    """What a step is rewarded for."""

    is_rate: bool
    violation_tokens: float
    price: float
    unloaded_tpot_s: float
    slots: int


@njit(cache=True)
def take_actions(actions: Ints, acting: Bools, tiers: Tiers, plan: FleetPlan) -> int:
    """Let the actions [R, C · 4] of those that act hold; the first row outside the table, or -1."""
    for r in range(len(acting)):
        if not acting[r]:
            continue
        for c in range(plan.depth.shape[1]):
            depth, width, nodes, margin = actions[r, DIMENSIONS * c : DIMENSIONS * (c + 1)]
            if not (
                0 <= depth < len(tiers.depths)
                and 0 <= width < len(tiers.widths)
                and 0 <= nodes < len(tiers.nodes)
                and margin == 0
            ):
                return r
            plan.depth[r, c] = tiers.depths[depth]
            plan.width[r, c] = tiers.widths[width]
            plan.nodes[r, c] = tiers.nodes[nodes]
    return -1


@njit(cache=True, error_model="numpy")
def reward_parts(tally: Any, pay: Pay, parts: Floats, reward: Floats) -> None:
    """Fill in what tokens in time, violations and time are worth [3, R], and the sums [R]."""
    for r in range(len(tally)):
        token_times = tally[r].busy_s / pay.unloaded_tpot_s
        scale = 1.0 / pay.slots
        if pay.is_rate:
            scale = scale / token_times if token_times > 0 else 0.0
        parts[0, r] = tally[r].valid * scale
        parts[1, r] = -pay.violation_tokens * tally[r].missed * scale
        parts[2, r] = 0.0 if pay.is_rate else -pay.price * token_times
        reward[r] = parts[0, r] + parts[1, r] + parts[2, r]
