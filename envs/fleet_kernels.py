"""A step of all environments of a fleet in one call: from actions to rewards and observations.

The rules are `policies.actions.ActionTable`'s and `envs.reward.GoodputReward`'s; a test holds each
to its own. In NumPy these few operations cost more than serving the step, and so does handing the
fleet's many arrays to a second kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.inner import BORROWED, INNER
from engine.protocol import Bools, Floats, Ints
from engine.replay.fleet.state import FleetPlan, FleetState, Record
from engine.replay.fleet.steps import hand_over, serve_replica, wipe_ended, wipe_tally
from envs.reward import MOST_LATE_TOKENS, MOST_WAITING_TOKENS, GoodputReward
from policies.fleet_features import (
    Scales,
    Scratch,
    age_queue,
    class_token_s,
    observe_replica,
    slack_tokens,
)
from policies.fleet_shifts import FleetShifts

DIMENSIONS = 4  # entries of an action for each class; the last is the margin, which is always 1
# Behind them an action may have one for the whole engine: which share of the slots may be held.


class Tiers(NamedTuple):
    """What the entries of an action choose from."""

    depths: Ints
    widths: Ints
    nodes: Ints
    running: Floats  # a single one is no entry of an action


class Pay(NamedTuple):
    """What a step is rewarded for."""

    is_rate: bool
    minds_standing: bool
    violation_tokens: float
    price: float
    tail_price: float
    waiting_price: float
    joule_tokens: float
    switch_tokens: float
    unloaded_tpot_s: float
    slots: int


def pay_of(reward: GoodputReward, unloaded_tpot_s: float, slots: int) -> Pay:
    """A reward as kernels take it."""
    return Pay(
        is_rate=reward.form == "rate",
        minds_standing=reward.minds_standing,
        violation_tokens=float(reward.violation_tokens),
        price=float(reward.price),
        tail_price=float(reward.tail_price),
        waiting_price=float(reward.waiting_price),
        joule_tokens=float(reward.joule_tokens),
        switch_tokens=float(reward.switch_tokens),
        unloaded_tpot_s=unloaded_tpot_s,
        slots=slots,
    )


class Course(NamedTuple):
    """How far the environments' episodes are."""

    live: Bools  # [R] within an episode
    decisions: Ints  # [R]
    most: int  # decisions that cut an episode, 0 where none do
    switched: Ints  # [R] classes whose plan the action changed


class Told(NamedTuple):
    """What a step brings: written by `step_all`, zeros where an environment does not act."""

    elapsed_s: Floats  # [R]
    waiting: Floats  # [R] as `envs.reward.Standing`
    tally: Any  # [R] TALLY
    ended: Any  # [R, C] ENDED
    parts: Floats  # [7, R] of the reward, as `envs.reward.PARTS`
    reward: Floats  # [R]
    truncated: Bools  # [R]
    observation: NDArray[np.float32]  # [R, F], of everybody


@njit(**BORROWED)
def step_all(
    actions: Ints,  # [R, D]
    acting: Bools,  # [R]
    iterations: int,
    tiers: Tiers,
    pay: Pay,
    scales: Scales,
    scratch: Scratch,
    plan: FleetPlan,
    shifts: FleetShifts,
    course: Course,
    fleet: FleetState,
    told: Told,
) -> tuple[int, bool]:
    """Serve the environments that act, and observe all.

    Returns the first row that cannot act, outside an episode or with an action outside the table,
    in which case nobody is served, or -1; and whether all numbers told are finite.
    """
    refused = first_over(acting, course.live)
    if refused < 0:
        refused = take_actions(actions, acting, tiers, plan, course.switched)
    if refused >= 0:
        return refused, True
    finite = True
    for r in range(len(acting)):
        told.elapsed_s[r] = told.waiting[r] = told.reward[r] = 0.0
        told.parts[:, r] = 0.0
        told.truncated[r] = False
        if acting[r]:
            _step(r, iterations, pay, plan, course, fleet, scratch, told)
        else:
            wipe_tally(told.tally[r])
            for c in range(told.ended.shape[1]):
                wipe_ended(told.ended[r, c])
        finite &= bool(np.isfinite(told.reward[r]))
        finite &= observe_replica(r, fleet, plan, shifts, scales, scratch, told.observation[r])
    return -1, finite


@njit(**INNER)
def first_over(acting: Bools, live: Bools) -> int:
    """The first environment that acts though its episode is over, or -1."""
    for r in range(len(acting)):
        if acting[r] and not live[r]:
            return r
    return -1


@njit(**BORROWED)
def take_actions(
    actions: Ints, acting: Bools, tiers: Tiers, plan: FleetPlan, switched: Ints
) -> int:
    """Let the actions [R, D] of those that act hold; the first row outside the table, or -1.

    Writes how many classes of each get another plan into `switched` [R]; all of them see how many
    requests may run. Where an action is refused nothing is written.
    """
    classes, shares = plan.depth.shape[1], len(tiers.running)
    for r in range(len(acting)):
        if acting[r] and shares > 1 and not 0 <= actions[r, DIMENSIONS * classes] < shares:
            return r
        for c in range(classes if acting[r] else 0):
            depth, width, nodes, margin = actions[r, DIMENSIONS * c : DIMENSIONS * (c + 1)]
            if not (
                0 <= depth < len(tiers.depths)
                and 0 <= width < len(tiers.widths)
                and 0 <= nodes < len(tiers.nodes)
                and margin == 0
            ):
                return r
    for r in range(len(acting)):
        if not acting[r]:
            continue
        switched[r] = 0
        for c in range(classes):
            depth = tiers.depths[actions[r, DIMENSIONS * c]]
            width = tiers.widths[actions[r, DIMENSIONS * c + 1]]
            nodes = tiers.nodes[actions[r, DIMENSIONS * c + 2]]
            is_same = depth == plan.depth[r, c] and width == plan.width[r, c]
            switched[r] += not (is_same and nodes == plan.nodes[r, c])
            plan.depth[r, c], plan.width[r, c], plan.nodes[r, c] = depth, width, nodes
        if shares > 1:
            share = tiers.running[actions[r, DIMENSIONS * classes]]
            if share != plan.running[r]:
                switched[r] = classes
            plan.running[r] = share
    return -1


@njit(**INNER, inline="always")
def _step(
    r: int,
    iterations: int,
    pay: Pay,
    plan: FleetPlan,
    course: Course,
    fleet: FleetState,
    scratch: Scratch,
    told: Told,
) -> None:
    """Serve environment r, and tell what came of it."""
    began_s = fleet.replicas[r].clock_s
    serve_replica(r, iterations, plan, fleet)
    course.decisions[r] += 1
    is_over = not fleet.replicas[r].ready or course.decisions[r] == course.most
    course.live[r] = not is_over
    told.truncated[r] = is_over
    told.elapsed_s[r] = fleet.replicas[r].clock_s - began_s
    hand_over(r, fleet, told.tally, told.ended)
    told.waiting[r] = waiting_of(r, fleet, pay.unloaded_tpot_s, scratch.oldest_s)
    late_tokens = late_tokens_of(r, fleet) if pay.minds_standing else 0.0
    told.reward[r] = reward_parts(
        told.tally[r], pay, late_tokens, told.waiting[r], course.switched[r], told.parts[:, r]
    )


@njit(**INNER)
def late_tokens_of(r: int, fleet: FleetState) -> float:
    """Tokens behind their objectives, of all that decode (`envs.reward.Standing`)."""
    clock_s, total = fleet.replicas[r].clock_s, 0.0
    for s in range(fleet.slots.shape[1]):
        slot = fleet.slots[r, s]
        if slot.decoding:
            total += min(max(-slack_tokens(slot, clock_s), 0.0), MOST_LATE_TOKENS)
    return total


@njit(**INNER)
def waiting_of(r: int, fleet: FleetState, unloaded_tpot_s: float, oldest_s: Floats) -> float:
    """How far gone is who waits longest (`envs.reward.Standing`); `oldest_s` [C] is scratch."""
    age_queue(r, fleet, oldest_s)
    most = 0.0
    for c in range(len(oldest_s)):
        most = max(most, oldest_s[c] / class_token_s(c, fleet, unloaded_tpot_s))
    return min(most / MOST_WAITING_TOKENS, 1.0)


@njit(**BORROWED, error_model="numpy")
def reward_parts(
    tally: Record, pay: Pay, late_tokens: float, waiting: float, switched: int, parts: Floats
) -> float:
    """Fill in what each of `envs.reward.PARTS` is worth [7]; returns the sum."""
    token_times = tally.busy_s / pay.unloaded_tpot_s
    scale, lasting = 1.0 / pay.slots, token_times
    if pay.is_rate:
        lasting = 1.0 if token_times > 0 else 0.0
        scale = scale / token_times if token_times > 0 else 0.0
    parts[0] = tally.valid * scale
    parts[1] = -pay.violation_tokens * tally.missed * scale
    parts[2] = 0.0 if pay.is_rate else -pay.price * token_times
    parts[3] = -pay.tail_price * late_tokens / pay.slots * lasting
    parts[4] = -pay.waiting_price * waiting * lasting
    parts[5] = -pay.joule_tokens * tally.energy_joules * scale
    parts[6] = -pay.switch_tokens * switched * scale
    total = 0.0
    for part in parts:  # from the first on, as Python's sum
        total += part
    return total
