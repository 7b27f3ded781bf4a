"""What a learned controller sees: a view aggregated by SLO class into a fixed float32 vector.

The environment and the exported controller both call `observe`, so training and serving see the
same numbers. Every feature is scaled to [0, 1] ([-1, 1] for slack) and clipped there; heavy tails
are scaled by logarithm. Normalising by training statistics is `policies.network.Normaliser`'s.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Floats, View
from policies.actions import PlanByClass

POSITIONS = 6
"""Tree positions that are described one by one; the deepest tier of the default action table."""
SLACK_TOKENS = 32
SINCE_ITERATIONS = 255
EVIDENCE_HALF = 4.0  # offers at which the evidence weight reaches one half

Observation = NDArray[np.float32]


class Feature(NamedTuple):
    """One entry of the observation, as documented and hashed into an exported controller."""

    name: str
    unit: str
    low: float
    high: float
    source: str  # the View's fields (or the plan's) that it is computed from


def _log_unit(what: str, top: int) -> str:
    return f"log1p({what}) / log1p({top})"


def _by_position(name: str, unit: str, source: str) -> tuple[tuple[str, str, float, str], ...]:
    return tuple((f"{name}_{p}", unit, 0.0, source) for p in range(1, POSITIONS + 1))


# name, unit, low, source; the upper bound is 1 throughout. `observe` fills them in this order.
_LINEAR: tuple[tuple[str, str, float, str], ...] = (
    ("active", "share of slots", 0.0, "active, slo_class"),
    ("slack_mean", f"tokens / {SLACK_TOKENS}", -1.0, "slack_tokens"),
    ("slack_min", f"tokens / {SLACK_TOKENS}", -1.0, "slack_tokens"),
    ("late", "share of the class's requests", 0.0, "slack_tokens"),
    ("draft_confidence", "probability", 0.0, "draft_confidence"),
    ("previous_depth", "share of the limit", 0.0, "previous plan"),
    ("previous_width", "share of the limit", 0.0, "previous plan"),
    ("previous_nodes", "share of the limit", 0.0, "previous plan"),
    ("previous_margin", "ratio", 0.0, "previous plan"),
    *_by_position("acceptance", "(accepted + 0.5) / (proposed + 1)", "accepted, proposed"),
    *_by_position("evidence", f"proposed / (proposed + {EVIDENCE_HALF:g})", "proposed"),
)
# Long tails, scaled by logarithm; the tops belong to the units.
_TOPS = (1023, 8191, 255, 4095, *(SINCE_ITERATIONS,) * POSITIONS)
_LOGARITHMIC: tuple[tuple[str, str, float, str], ...] = (
    ("remaining_mean", _log_unit("tokens", 1023), 0.0, "remaining_tokens"),
    ("context_mean", _log_unit("tokens", 8191), 0.0, "context_tokens"),
    ("queued", _log_unit("requests", 255), 0.0, "queued"),
    ("queue_age", _log_unit("TPOT objectives", 4095), 0.0, "oldest_queued_s"),
    *_by_position("since", _log_unit("iterations", SINCE_ITERATIONS), "since_proposed"),
)
_CLASS_FEATURES = (*_LINEAR, *_LOGARITHMIC)
_ENGINE_FEATURES: tuple[tuple[str, str, float, str], ...] = (
    ("running", "share of slots", 0.0, "active"),
    ("prefilling", "share of slots", 0.0, "prefilling"),
    ("queued", _log_unit("requests", 255), 0.0, "queued"),
    ("kv_free", "share of cache rows", 0.0, "kv_free_tokens, kv_total_tokens"),
    ("memory", _log_unit("GiB", 1023), 0.0, "memory_bytes"),
    ("power", _log_unit("watts", 16383), 0.0, "power_watts"),
    ("power_cap", "share of the cap, 0 without one", 0.0, "power_watts, power_cap_watts"),
    ("power_is_measured", "flag", 0.0, "power_is_measured"),
    ("iteration", _log_unit("unloaded TPOTs", 63), 0.0, "iteration_s, unloaded_tpot_s"),
)
_CLASS_LOW = np.array([low for _, _, low, _ in _CLASS_FEATURES])
_LOG_TOPS = np.log1p(np.array(_TOPS, dtype=np.float64))
_AVERAGED = 5  # slack, late, confidence, remaining, context


def feature_table(class_names: Sequence[str]) -> tuple[Feature, ...]:
    """All features in the order of the observation: class by class, then the engine's."""
    by_class = tuple(
        Feature(f"{owner}.{name}", unit, low, 1.0, source)
        for owner in class_names
        for name, unit, low, source in _CLASS_FEATURES
    )
    engine = tuple(
        Feature(f"engine.{name}", unit, low, 1.0, source)
        for name, unit, low, source in _ENGINE_FEATURES
    )
    return by_class + engine


def schema_hash(features: Sequence[Feature]) -> str:
    """SHA-256 over name, unit, bounds and order: equal only when two sides see the same thing."""
    text = json.dumps([[f.name, f.unit, f.low, f.high] for f in features], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def bounds(features: Sequence[Feature]) -> tuple[Observation, Observation]:
    """Lowest and highest observation, float32 [F] each."""
    low = np.array([f.low for f in features], dtype=np.float32)
    return low, np.array([f.high for f in features], dtype=np.float32)


def require_finite(observation: Observation, features: Sequence[Feature]) -> None:
    """Raise UserError naming the first feature that is not a number."""
    finite = np.isfinite(observation)
    if not finite.all():
        bad = features[int(np.argmin(finite))]
        raise UserError(
            f"feature {bad.name} is not a finite number; it is computed from View.{bad.source}, "
            "which the engine must fill with finite values"
        )


def observe(view: View, previous: PlanByClass) -> Observation:
    """The observation of `view`: a fresh float32 [F] inside the bounds of `feature_table`.

    `previous` is the plan by class now in force. A value that is not a number stays one, for
    `require_finite` to name. A class without active requests reads as: no slack, acceptance 0.5
    with evidence 0, positions last proposed long ago.
    """
    limits, n_classes = view.limits, len(view.class_names)
    rows = np.flatnonzero(view.active)
    slo_class = view.slo_class[rows]
    count = np.bincount(slo_class, minlength=n_classes)
    held = min(POSITIONS, view.proposed.shape[1])

    columns = np.zeros((len(rows), _AVERAGED + 2 * POSITIONS))
    slack = np.minimum(np.maximum(view.slack_tokens[rows], -SLACK_TOKENS), SLACK_TOKENS)
    columns[:, 0] = slack
    columns[:, 1] = slack < 0
    columns[:, 2] = view.draft_confidence[rows]
    columns[:, 3] = view.remaining_tokens[rows]
    columns[:, 4] = view.context_tokens[rows]
    columns[:, _AVERAGED : _AVERAGED + held] = view.accepted[rows, :held]
    columns[:, _AVERAGED + POSITIONS : _AVERAGED + POSITIONS + held] = view.proposed[rows, :held]
    # Not a matrix product, which would spread one class's NaN over all of them.
    sums = np.zeros((n_classes, columns.shape[1]))
    np.add.at(sums, slo_class, columns)
    mean = sums[:, :_AVERAGED] / np.maximum(count, 1)[:, None]
    accepted, proposed = sums[:, _AVERAGED:-POSITIONS], sums[:, -POSITIONS:]

    slack_min = np.full(n_classes, float(SLACK_TOKENS))
    np.minimum.at(slack_min, slo_class, slack)
    since = np.full((n_classes, POSITIONS), float(SINCE_ITERATIONS))
    np.minimum.at(since[:, :held], slo_class, view.since_proposed[rows, :held])
    token_s = class_token_s(view)

    size = n_classes * len(_CLASS_FEATURES)
    out = np.empty(size + len(_ENGINE_FEATURES))
    block = out[:size].reshape(n_classes, -1)
    block[:, 0] = count / limits.slots
    block[:, 1] = mean[:, 0] / SLACK_TOKENS
    block[:, 2] = np.where(count > 0, slack_min / SLACK_TOKENS, 0.0)
    block[:, 3:5] = mean[:, 1:3]
    block[:, 5] = previous.depth / limits.max_depth
    block[:, 6] = previous.width / limits.max_width
    block[:, 7] = previous.nodes / limits.max_nodes
    block[:, 8] = previous.margin
    block[:, 9 : 9 + POSITIONS] = (accepted + 0.5) / (proposed + 1.0)
    block[:, 9 + POSITIONS : len(_LINEAR)] = proposed / (proposed + EVIDENCE_HALF)
    tails = block[:, len(_LINEAR) :]
    tails[:, 0:2] = mean[:, 3:5]
    tails[:, 2] = view.queued
    tails[:, 3] = view.oldest_queued_s / token_s
    tails[:, 4:] = since
    np.log1p(np.maximum(tails, 0.0, out=tails), out=tails)
    tails /= _LOG_TOPS
    out[size:] = _engine_wide(view, len(rows))
    np.minimum(np.maximum(block, _CLASS_LOW, out=block), 1.0, out=block)
    np.minimum(np.maximum(out[size:], 0.0, out=out[size:]), 1.0, out=out[size:])
    return out.astype(np.float32)


def class_token_s(view: View) -> Floats:
    """[C] seconds a token in which a class's queue is measured: its objective's, else unloaded."""
    objective_s = view.class_tpot_objective_s
    return np.where(np.isfinite(objective_s), objective_s, view.unloaded_tpot_s)


def _engine_wide(view: View, running: int) -> tuple[float, ...]:
    """The features of the engine as a whole, in the order of `_ENGINE_FEATURES`."""
    slots = view.limits.slots
    return (
        running / slots,
        view.prefilling / slots,
        math.log1p(view.queued.sum()) / math.log1p(255),
        view.kv_free_tokens / max(view.kv_total_tokens, 1),
        math.log1p(view.memory_bytes / 2**30) / math.log1p(1023),
        math.log1p(view.power_watts) / math.log1p(16383),
        view.power_watts / view.power_cap_watts,
        float(view.power_is_measured),
        math.log1p(view.iteration_s / view.unloaded_tpot_s) / math.log1p(63),
    )
