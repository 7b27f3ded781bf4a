"""`policies.features.observe`, compiled: the same numbers to the last bit, in less time.

An exported controller needs NumPy alone and computes its features with it. In our engine there is
Numba anyway: there `policies.learned.LearnedController.features_of` may be this.
"""

from __future__ import annotations

from math import log1p

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints, View
from policies.actions import PlanByClass
from policies.features import (
    ACCEPTANCE,
    BY_CLASS,
    EVIDENCE,
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
    class_token_s,
    engine_wide,
    lowest,
    past_of,
)
from policies.fleet_features import SINCE_LOGS, scale_class
from policies.predicted_cost import predicted_steps
from policies.shifts import Shifts


def observe_compiled(
    view: View, previous: PlanByClass, shifts: Shifts | None = None
) -> Observation:
    """As `policies.features.observe`."""
    n_classes, limits = len(view.class_names), view.limits
    low, size = lowest(n_classes), n_classes * BY_CLASS
    out, count = np.zeros(len(low)), np.zeros(n_classes, np.int64)
    block = out[:size].reshape(n_classes, -1)
    _fill_classes(
        view.active,
        view.slo_class,
        view.slack_tokens,
        view.draft_confidence,
        view.remaining_tokens,
        view.context_tokens,
        view.accepted,
        view.proposed,
        view.since_proposed,
        limits.slots,
        count,
        block,
    )
    plan = np.array(previous)
    block[:, PREVIOUS:SLACK_MIN] = plan.T / (*limits[1:], 1.0)
    arrivals, since = past_of(view, shifts, block)
    _fill_tails(
        view.queued, view.oldest_queued_s, class_token_s(view), np.array((arrivals, since)), block
    )
    out[size:] = engine_wide(view, count.tolist(), predicted_steps(view, plan))
    np.minimum(np.maximum(out, low, out=out), 1.0, out=out)
    return out.astype(np.float32)


@njit(cache=True, error_model="numpy")
def _fill_classes(
    active: Bools,
    slo_class: Ints,
    slack_tokens: Floats,
    draft_confidence: Floats,
    remaining_tokens: Ints,
    context_tokens: Ints,
    accepted: Floats,
    proposed: Floats,
    since_proposed: Ints,
    slots: int,
    count: Ints,
    block: Floats,
) -> None:
    """Count by class [C] who decodes, and fill in the block [C, …] but for plan and tails.

    Of the tails the means stand there unscaled, and iterations since a position was proposed.
    """
    held = min(POSITIONS, proposed.shape[1])
    block[:, SLACK_MIN] = SINCE_ITERATIONS
    block[:, SINCE:REMAINING] = SINCE_ITERATIONS
    for s in range(len(active)):
        if not active[s]:
            continue
        c = slo_class[s]
        of = block[c]
        count[c] += 1
        slack = slack_tokens[s]
        if slack < -SLACK_TOKENS:
            slack = -float(SLACK_TOKENS)
        elif slack > SLACK_TOKENS:
            slack = float(SLACK_TOKENS)
        slack /= SLACK_TOKENS
        of[1] += slack
        of[2] += slack < 0
        of[3] += draft_confidence[s]
        of[SLACK_MIN] = _least(of[SLACK_MIN], slack)
        of[REMAINING] += remaining_tokens[s]
        of[REMAINING + 1] += context_tokens[s]
        for d in range(held):
            of[ACCEPTANCE + d] += accepted[s, d]
            of[EVIDENCE + d] += proposed[s, d]
            of[SINCE + d] = min(of[SINCE + d], float(since_proposed[s, d]))
    for c in range(len(count)):
        scale_class(block[c], count[c], slots)


@njit(cache=True, error_model="numpy")
def _fill_tails(
    queued: Ints, oldest_queued_s: Floats, token_s: Floats, past: Floats, block: Floats
) -> None:
    """What queues [C] and the past [2, C] show, and the logarithms of all tails."""
    for c in range(len(queued)):
        tails, queue = block[c, SINCE:], block[c, QUEUED:]
        queue[0], queue[1] = queued[c], oldest_queued_s[c] / token_s[c]
        queue[2], queue[3] = past[0, c], past[1, c]
        for i in range(POSITIONS):
            tails[i] = SINCE_LOGS[int(tails[i])]
        for i in range(POSITIONS, len(tails)):
            value = 0.0 if tails[i] < 0.0 else tails[i]
            tails[i] = log1p(value) / LOG_TOPS[i]


def load_kernels() -> None:
    """Call them with nothing, so that loading them is charged to no decision."""
    whole, one, trees = np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 1))
    nobody, block = np.zeros(1, np.bool_), np.zeros((1, BY_CLASS))
    since = np.zeros((1, 1), np.int64)
    _fill_classes(nobody, whole, one, one, whole, whole, trees, trees, since, 1, whole, block)
    _fill_tails(whole, one, one + 1, np.zeros((2, 1)), block)


@njit(cache=True)
def _least(one: float, other: float) -> float:
    """The smaller, or what is no number."""
    return other if other < one or np.isnan(other) else one
