"""What each request shows: a row of float32 a slot, for policies that attend to requests.

`observe_requests` stands beside `policies.features.observe`, which tells of classes and the engine.
Rows are scaled as that is: to [0, 1] ([-1, 1] for slack) and clipped there, heavy tails by
logarithm; nothing is left to a trainer. Which row is which slot says nothing, so a policy should
not care (attention, or a sum over rows). NumPy alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.errors import UserError
from engine.protocol import View
from policies.features import (
    EVIDENCE_HALF,
    POSITIONS,
    SINCE_ITERATIONS,
    SLACK_TOKENS,
    Feature,
    Observation,
    by_position,
    log_unit,
)

# name, unit, low, source, as in `policies.features`; the class's one-hot stands behind them all.
_LINEAR: tuple[tuple[str, str, float, str], ...] = (
    ("slack", f"tokens / {SLACK_TOKENS}", -1.0, "slack_tokens"),
    ("pace", "unloaded TPOT / objective, 0 without one", 0.0, "tpot_objective_s"),
    ("draft_confidence", "probability", 0.0, "draft_confidence"),
    *by_position("acceptance", "(accepted + 0.5) / (proposed + 1)", "accepted, proposed"),
    *by_position("evidence", f"proposed / (proposed + {EVIDENCE_HALF:g})", "proposed"),
)
_TOPS = (1023, 8191, 1023, 4095, 4095, *(SINCE_ITERATIONS,) * POSITIONS)
_LOGARITHMIC: tuple[tuple[str, str, float, str], ...] = (
    ("remaining", log_unit("tokens", 1023), 0.0, "remaining_tokens"),
    ("context", log_unit("tokens", 8191), 0.0, "context_tokens"),
    ("emitted", log_unit("tokens", 1023), 0.0, "tokens_out"),
    ("age", log_unit("unloaded TPOTs", 4095), 0.0, "decode_time_s"),
    ("queue_age", log_unit("unloaded TPOTs", 4095), 0.0, "queue_age_s"),
    *by_position("since", log_unit("iterations", SINCE_ITERATIONS), "since_proposed"),
)
LOG_TOPS = np.log1p(np.array(_TOPS, dtype=np.float64))
ACCEPTANCE, TAILS = 3, len(_LINEAR)
EVIDENCE, SINCE = ACCEPTANCE + POSITIONS, TAILS + 5
CLASS = TAILS + len(_TOPS)


def request_table(class_names: Sequence[str]) -> tuple[Feature, ...]:
    """The K features of a row in their order; `policies.features.schema_hash` hashes them."""
    rows = (
        *((f"request.{name}", unit, low, source) for name, unit, low, source in _LINEAR),
        *((f"request.{name}", unit, low, source) for name, unit, low, source in _LOGARITHMIC),
        *((f"request.is_{name}", "flag", 0.0, "slo_class") for name in class_names),
    )
    return tuple(Feature(name, unit, low, 1.0, source) for name, unit, low, source in rows)


def observe_requests(view: View) -> tuple[Observation, Observation]:
    """Rows [S, K] and mask [S], both float32 and fresh: 1 where a request decodes.

    Rows of other slots are 0. A value that is not a number stays one, for `require_finite_rows`.
    """
    rows, token_s = view.active.nonzero()[0], view.unloaded_tpot_s
    count, held = len(rows), min(POSITIONS, view.proposed.shape[1])
    found = np.zeros((count, CLASS + len(view.class_names)))
    found[:, 0] = view.slack_tokens[rows] / SLACK_TOKENS
    found[:, 1] = token_s / view.tpot_objective_s[rows]  # 0 where it is infinite
    found[:, 2] = view.draft_confidence[rows]
    proposed = np.zeros((count, POSITIONS))
    proposed[:, :held] = view.proposed[rows, :held]
    accepted, since = found[:, ACCEPTANCE:EVIDENCE], found[:, SINCE:CLASS]
    accepted[:, :held] = view.accepted[rows, :held]
    found[:, ACCEPTANCE:EVIDENCE] = (accepted + 0.5) / (proposed + 1.0)
    found[:, EVIDENCE:TAILS] = proposed / (proposed + EVIDENCE_HALF)
    tails = found[:, TAILS:CLASS]
    tails[:, 0] = view.remaining_tokens[rows]
    tails[:, 1] = view.context_tokens[rows]
    tails[:, 2] = view.tokens_out[rows]
    tails[:, 3] = view.decode_time_s[rows] / token_s
    tails[:, 4] = view.queue_age_s[rows] / token_s
    since[:] = SINCE_ITERATIONS
    since[:, :held] = view.since_proposed[rows, :held]
    np.log1p(np.maximum(tails, 0.0, out=tails), out=tails)
    tails /= LOG_TOPS
    found[np.arange(count), CLASS + view.slo_class[rows]] = 1.0
    np.minimum(np.maximum(found[:, 0], -1.0, out=found[:, 0]), 1.0, out=found[:, 0])
    np.minimum(np.maximum(found[:, 1:], 0.0, out=found[:, 1:]), 1.0, out=found[:, 1:])
    told = np.zeros((view.limits.slots, found.shape[1]), np.float32)
    told[rows] = found
    return told, view.active.astype(np.float32)


def row_bounds(features: Sequence[Feature], slots: int) -> tuple[Observation, Observation]:
    """Lowest and highest rows, float32 [S, K] each."""
    low = np.array([f.low for f in features], dtype=np.float32)
    high = np.array([f.high for f in features], dtype=np.float32)
    return np.tile(low, (slots, 1)), np.tile(high, (slots, 1))


def require_finite_rows(rows: Observation, features: Sequence[Feature]) -> None:
    """Raise UserError naming slot and feature of the first number of rows [S, K] that is none."""
    finite = np.isfinite(rows)
    if not finite.all():
        slot, column = np.argwhere(~finite)[0].tolist()
        bad = features[column]
        raise UserError(
            f"feature {bad.name} of slot {slot} is not a finite number; it is computed from "
            f"View.{bad.source}, which the engine must fill with finite values"
        )
