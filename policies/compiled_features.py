"""`policies.features.observe`, compiled: the same numbers to the last bit, in less time.

An exported controller needs NumPy alone and computes its features with it. In our engine there is
Numba anyway: there `policies.learned.LearnedController.features_of` may be this, and
`policies.compiled_decision` builds on these kernels.
"""

from __future__ import annotations

from math import log1p
from typing import NamedTuple

import numpy as np
from numba import njit

from engine.kernels.class_steps import class_steps
from engine.protocol import Bools, Floats, Ints, View
from policies.actions import PlanByClass
from policies.features import (
    ACCEPTANCE,
    BY_CLASS,
    EVIDENCE,
    LOG_LOAD,
    LOG_STEPS,
    LOG_TOPS,
    POSITIONS,
    PREVIOUS,
    QUEUED,
    REMAINING,
    SINCE,
    SINCE_ITERATIONS,
    SLACK_MIN,
    SLACK_TOKENS,
    Observation,
    lowest,
)
from policies.fleet_features import LOG_QUEUED, LOG_WATTS, SINCE_LOGS, scale_class
from policies.predicted_cost import predicted_steps
from policies.shifts import SPAN_TOKEN_TIMES, Shifts

LOG_GIB = log1p(1023)
UNPRICED = float("nan")
"""Seconds of a step where nobody can tell."""


class Seen(NamedTuple):
    """What kernels look at of a view, under the names and shapes of `engine.protocol.View`."""

    active: Bools
    request: Ints
    slo_class: Ints
    slack_tokens: Floats
    draft_confidence: Floats
    remaining_tokens: Ints
    context_tokens: Ints
    accepted: Floats
    proposed: Floats
    since_proposed: Ints
    class_tpot_objective_s: Floats
    queued: Ints
    oldest_queued_s: Floats
    prefilling: int
    kv_free_tokens: int
    kv_total_tokens: int
    memory_bytes: float
    power_watts: float
    power_cap_watts: float
    power_is_measured: bool
    clock_s: float
    iteration_s: float
    unloaded_tpot_s: float


def seen(view: View) -> Seen:
    """Numbers are Python's own: Numba would compile a kernel for every kind that comes."""
    return Seen(
        view.active,
        view.request,
        view.slo_class,
        view.slack_tokens,
        view.draft_confidence,
        view.remaining_tokens,
        view.context_tokens,
        view.accepted,
        view.proposed,
        view.since_proposed,
        view.class_tpot_objective_s,
        view.queued,
        view.oldest_queued_s,
        int(view.prefilling),
        int(view.kv_free_tokens),
        int(view.kv_total_tokens),
        float(view.memory_bytes),
        float(view.power_watts),
        float(view.power_cap_watts),
        bool(view.power_is_measured),
        float(view.clock_s),
        float(view.iteration_s),
        float(view.unloaded_tpot_s),
    )


def observe_compiled(
    view: View, previous: PlanByClass, shifts: Shifts | None = None
) -> Observation:
    """As `policies.features.observe`."""
    of_view, n_classes, limits = seen(view), len(view.class_names), view.limits
    low, size = lowest(n_classes), n_classes * BY_CLASS
    out, count = np.zeros(len(low)), np.zeros(n_classes, np.int64)
    block = out[:size].reshape(n_classes, -1)
    fill_classes(of_view, limits.slots, count, block)
    plan = np.array(previous, float)
    block[:, PREVIOUS:SLACK_MIN] = plan.T / (*limits[1:], 1.0)
    past = np.zeros((2, n_classes))
    if shifts is None:
        past[1] = -np.inf  # nothing ever changed
    else:
        shifts.look(view, *(block[:, i].tolist() for i in (ACCEPTANCE, EVIDENCE, SINCE)))
        past[:] = shifts.rate_hz, shifts.changed_s
    fill_tails(of_view, past, block)
    is_priced = view.pricing is not None
    steps_s = predicted_steps(view, plan) if is_priced else (UNPRICED, UNPRICED)
    fill_engine(of_view, count, *steps_s, out[size:])
    np.minimum(np.maximum(out, low, out=out), 1.0, out=out)
    return out.astype(np.float32)


@njit(cache=True, error_model="numpy")
def fill_classes(of_view: Seen, slots: int, count: Ints, block: Floats) -> None:
    """Count by class [C] who decodes, and fill in the block [C, …] but for plan and tails.

    Both come with zeros. Of the tails the means stand there unscaled, and iterations since a
    position was proposed.
    """
    held = min(POSITIONS, of_view.proposed.shape[1])
    block[:, SLACK_MIN] = SINCE_ITERATIONS
    block[:, SINCE:REMAINING] = SINCE_ITERATIONS
    for s in range(len(of_view.active)):
        if not of_view.active[s]:
            continue
        c = of_view.slo_class[s]
        of = block[c]
        count[c] += 1
        slack = of_view.slack_tokens[s]
        if slack < -SLACK_TOKENS:
            slack = -float(SLACK_TOKENS)
        elif slack > SLACK_TOKENS:
            slack = float(SLACK_TOKENS)
        slack /= SLACK_TOKENS
        of[1] += slack
        of[2] += slack < 0
        of[3] += of_view.draft_confidence[s]
        of[SLACK_MIN] = _least(of[SLACK_MIN], slack)
        of[REMAINING] += of_view.remaining_tokens[s]
        of[REMAINING + 1] += of_view.context_tokens[s]
        for d in range(held):
            of[ACCEPTANCE + d] += of_view.accepted[s, d]
            of[EVIDENCE + d] += of_view.proposed[s, d]
            of[SINCE + d] = min(of[SINCE + d], float(of_view.since_proposed[s, d]))
    for c in range(len(count)):
        scale_class(block[c], count[c], slots)


@njit(cache=True, error_model="numpy")
def fill_tails(of_view: Seen, past: Floats, block: Floats) -> None:
    """What queues [C] and the past show, and the logarithms of all tails.

    `past` [2, C] are arrivals a second, and when the class changed, -inf for never.
    """
    token_s = of_view.unloaded_tpot_s
    for c in range(len(of_view.queued)):
        tails, queue = block[c, SINCE:], block[c, QUEUED:]
        objective_s = of_view.class_tpot_objective_s[c]
        queue[0] = of_view.queued[c]
        queue[1] = of_view.oldest_queued_s[c] / (
            objective_s if np.isfinite(objective_s) else token_s
        )
        queue[2] = past[0, c] * (SPAN_TOKEN_TIMES * token_s)
        queue[3] = (of_view.clock_s - past[1, c]) / token_s
        for i in range(POSITIONS):
            tails[i] = SINCE_LOGS[int(tails[i])]
        for i in range(POSITIONS, len(tails)):
            value = 0.0 if tails[i] < 0.0 else tails[i]
            tails[i] = log1p(value) / LOG_TOPS[i]


@njit(cache=True, error_model="numpy")
def fill_engine(
    of_view: Seen, count: Ints, ordinary_s: float, planned_s: float, out: Floats
) -> None:
    """As `policies.features.engine_wide`; `count` [C] requests decode. Steps may be UNPRICED."""
    is_priced = not np.isnan(ordinary_s)
    if not is_priced:
        ordinary_s = planned_s = 0.0
    slots, token_s = len(of_view.active), of_view.unloaded_tpot_s
    demand_hz, running, queued = 0.0, 0, 0
    for c in range(len(count)):
        demand_hz += count[c] / of_view.class_tpot_objective_s[c]
        running += count[c]
        queued += of_view.queued[c]
    out[0] = running / slots
    out[1] = of_view.prefilling / slots
    out[2] = log1p(queued) / LOG_QUEUED
    out[3] = of_view.kv_free_tokens / max(of_view.kv_total_tokens, 1)
    out[4] = log1p(of_view.memory_bytes / 2**30) / LOG_GIB
    out[5] = log1p(of_view.power_watts) / LOG_WATTS
    out[6] = of_view.power_watts / of_view.power_cap_watts
    out[7] = of_view.power_is_measured
    out[8] = log1p(of_view.iteration_s / token_s) / LOG_STEPS
    out[9] = log1p(ordinary_s / token_s) / LOG_STEPS
    out[10] = log1p(planned_s / token_s) / LOG_STEPS
    out[11] = log1p(demand_hz * ordinary_s / max(running, 1)) / LOG_LOAD
    out[12] = is_priced


def nothing(classes: int) -> Seen:
    """An engine of one slot and so many classes, in which nothing happens."""
    whole, one, trees = np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 1))
    since, nobody = np.zeros((1, 1), np.int64), np.zeros(1, np.bool_)
    by_class, waiting = np.ones(classes), np.zeros(classes, np.int64)
    return Seen(
        nobody, whole, whole, one, one, whole, whole, trees, trees, since, by_class, waiting,
        by_class, 0, 0, 0, 0.0, 0.0, 1.0, False, 0.0, 0.0, 1.0,
    )  # fmt: skip


def load_kernels() -> None:
    """Call them with nothing, so that loading them is charged to no decision."""
    of_view, block, count = nothing(1), np.zeros((1, BY_CLASS)), np.zeros(1, np.int64)
    fill_classes(of_view, 1, count, block)
    fill_tails(of_view, np.zeros((2, 1)), block)
    fill_engine(of_view, count, 0.0, 0.0, np.zeros(13))
    nobody, tree = (of_view.active, *(of_view.request,) * 3), np.zeros((3, 1))
    class_steps(np.zeros((4, 1)), np.zeros((4, 3)), *nobody, tree)


@njit(cache=True)
def _least(one: float, other: float) -> float:
    """The smaller, or what is no number."""
    return other if other < one or np.isnan(other) else one
