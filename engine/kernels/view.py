"""Per-slot figures that a controller sees, derived from the ledger at the current clock."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats
from engine.state import SlotState


@njit(cache=True)
def slack_tokens(clock_s: Floats, slots: SlotState, slack: Floats, decode_time_s: Floats) -> None:
    """Slack o - l / τ [R, S] and decode time l [R, S]; o and l count from the first token."""
    replicas, n_slots = slots.active.shape
    for r in range(replicas):
        for s in range(n_slots):
            slack[r, s] = 0.0
            decode_time_s[r, s] = 0.0
            if slots.decoding[r, s]:
                decode_time_s[r, s] = clock_s[r] - slots.first_token_s[r, s]
                slack[r, s] = slots.emitted[r, s] - 1.0
                if np.isfinite(slots.tpot_objective_s[r, s]):
                    slack[r, s] -= decode_time_s[r, s] / slots.tpot_objective_s[r, s]
