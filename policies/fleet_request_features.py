"""What the requests of a fleet's replicas show: `policies.request_features`, compiled.

A second call beside `envs.fleet_kernels.step_all`, for who asks for requests: others pay nothing.
"""

from __future__ import annotations

from math import log1p

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.inner import BORROWED, INNER
from engine.protocol import Floats
from engine.replay.fleet.state import FleetState, Record
from policies.features import EVIDENCE_HALF, POSITIONS, SINCE_ITERATIONS, SLACK_TOKENS
from policies.fleet_features import SINCE_LOGS, inside, slack_tokens
from policies.request_features import ACCEPTANCE, CLASS, EVIDENCE, LOG_TOPS, SINCE, TAILS


@njit(**BORROWED)
def show_requests(
    fleet: FleetState,
    unloaded_tpot_s: float,
    exact: Floats,
    rows: NDArray[np.float32],
    mask: NDArray[np.float32],
) -> bool:
    """Fill rows [R, S, K] and mask [R, S]; whether every number is finite. `exact` [K] is scratch.

    Rows of slots where nobody decodes are 0.
    """
    finite = True
    for r in range(rows.shape[0]):
        clock_s = fleet.replicas[r].clock_s
        for s in range(rows.shape[1]):
            slot = fleet.slots[r, s]
            mask[r, s] = slot.decoding
            rows[r, s, :] = 0.0
            if not slot.decoding:
                continue
            _show_slot(slot, clock_s, unloaded_tpot_s, exact)
            _show_history(r, s, fleet, exact)
            for i in range(rows.shape[2]):
                value = inside(exact[i], -1.0 if i == 0 else 0.0)
                rows[r, s, i] = value
                finite &= np.isfinite(value)
    return finite


@njit(**INNER, error_model="numpy")
def _show_slot(slot: Record, clock_s: float, unloaded_tpot_s: float, out: Floats) -> None:
    """All of a row [K] but its history by position."""
    out[CLASS:] = 0.0
    out[CLASS + slot.slo_class] = 1.0
    out[0] = slack_tokens(slot, clock_s) / SLACK_TOKENS
    out[1] = unloaded_tpot_s / slot.tpot_s
    out[2] = slot.draft_confidence
    out[TAILS] = slot.max_tokens - slot.emitted
    out[TAILS + 1] = slot.context
    out[TAILS + 2] = slot.emitted - 1
    out[TAILS + 3] = (clock_s - slot.first_token_s) / unloaded_tpot_s
    out[TAILS + 4] = (slot.admitted_s - slot.arrival_s) / unloaded_tpot_s
    for i in range(SINCE - TAILS):
        out[TAILS + i] = log1p(max(out[TAILS + i], 0.0)) / LOG_TOPS[i]


@njit(**INNER, error_model="numpy")
def _show_history(r: int, s: int, fleet: FleetState, out: Floats) -> None:
    """Acceptance, evidence and age of every position, in a row [K]."""
    history = fleet.history
    for d in range(POSITIONS):
        accepted = proposed = 0.0
        since = SINCE_ITERATIONS
        if d < history.proposed.shape[2]:
            accepted, proposed = history.accepted[r, s, d], history.proposed[r, s, d]
            since = min(history.since_proposed[r, s, d], SINCE_ITERATIONS)
        out[ACCEPTANCE + d] = (accepted + 0.5) / (proposed + 1.0)
        out[EVIDENCE + d] = proposed / (proposed + EVIDENCE_HALF)
        out[SINCE + d] = SINCE_LOGS[since]
