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
from functools import cache
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Floats, Ints, View
from policies.actions import PlanByClass
from policies.predicted_cost import predicted_steps
from policies.shifts import SPAN_TOKEN_TIMES, Shifts

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


def log_unit(what: str, top: int) -> str:
    """The unit of a long tail that reaches 1 at `top`."""
    return f"log1p({what}) / log1p({top})"


def by_position(name: str, unit: str, source: str) -> tuple[tuple[str, str, float, str], ...]:
    """A row for each tree position that is described."""
    return tuple((f"{name}_{p}", unit, 0.0, source) for p in range(1, POSITIONS + 1))


# name, unit, low, source; the upper bound is 1 throughout. `observe` fills them in this order: what
# is averaged or summed over requests stands together, so that NumPy is called seldom.
_LINEAR: tuple[tuple[str, str, float, str], ...] = (
    ("active", "share of slots", 0.0, "active, slo_class"),
    ("slack_mean", f"tokens / {SLACK_TOKENS}", -1.0, "slack_tokens"),
    ("late", "share of the class's requests", 0.0, "slack_tokens"),
    ("draft_confidence", "probability", 0.0, "draft_confidence"),
    *by_position("acceptance", "(accepted + 0.5) / (proposed + 1)", "accepted, proposed"),
    *by_position("evidence", f"proposed / (proposed + {EVIDENCE_HALF:g})", "proposed"),
    ("previous_depth", "share of the limit", 0.0, "previous plan"),
    ("previous_width", "share of the limit", 0.0, "previous plan"),
    ("previous_nodes", "share of the limit", 0.0, "previous plan"),
    ("previous_margin", "ratio", 0.0, "previous plan"),
    ("slack_min", f"tokens / {SLACK_TOKENS}", -1.0, "slack_tokens"),
)
# Long tails, scaled by logarithm; the tops belong to the units.
_TOPS = (*(SINCE_ITERATIONS,) * POSITIONS, 1023, 8191, 255, 4095, 255, 4095)
_LOGARITHMIC: tuple[tuple[str, str, float, str], ...] = (
    *by_position("since", log_unit("iterations", SINCE_ITERATIONS), "since_proposed"),
    ("remaining_mean", log_unit("tokens", 1023), 0.0, "remaining_tokens"),
    ("context_mean", log_unit("tokens", 8191), 0.0, "context_tokens"),
    ("queued", log_unit("requests", 255), 0.0, "queued"),
    ("queue_age", log_unit("TPOT objectives", 4095), 0.0, "oldest_queued_s"),
    (
        "arrivals",
        log_unit(f"requests in {SPAN_TOKEN_TIMES:g} unloaded TPOTs", 255),
        0.0,
        "request, queued, clock_s of all views",
    ),
    (
        "since_shift",
        log_unit("unloaded TPOTs", 4095),
        0.0,
        "request, queued, accepted, proposed, clock_s of all views",
    ),
)
_CLASS_FEATURES = (*_LINEAR, *_LOGARITHMIC)
_ENGINE_FEATURES: tuple[tuple[str, str, float, str], ...] = (
    ("running", "share of slots", 0.0, "active"),
    ("prefilling", "share of slots", 0.0, "prefilling"),
    ("queued", log_unit("requests", 255), 0.0, "queued"),
    ("kv_free", "share of cache rows", 0.0, "kv_free_tokens, kv_total_tokens"),
    ("memory", log_unit("GiB", 1023), 0.0, "memory_bytes"),
    ("power", log_unit("watts", 16383), 0.0, "power_watts"),
    ("power_cap", "share of the cap, 0 without one", 0.0, "power_watts, power_cap_watts"),
    ("power_is_measured", "flag", 0.0, "power_is_measured"),
    ("iteration", log_unit("unloaded TPOTs", 63), 0.0, "iteration_s, unloaded_tpot_s"),
    ("ordinary_step", log_unit("unloaded TPOTs", 63), 0.0, "pricing; 0 without a profile"),
    (
        "previous_step",
        log_unit("unloaded TPOTs", 63),
        0.0,
        "pricing of the previous plan; 0 without a profile",
    ),
    (
        "load",
        log_unit("tokens demanded in an ordinary step / its tokens", 15),
        0.0,
        "class_tpot_objective_s, pricing; 0 without a profile",
    ),
    ("is_priced", "flag", 0.0, "pricing"),
)
LOG_TOPS = np.log1p(np.array(_TOPS, dtype=np.float64))
LOG_STEPS, LOG_LOAD = math.log1p(63), math.log1p(15)
# Columns of what is summed by class, slot by slot: slack, late and confidence; accepted, proposed,
# and proposed again, as the two fractions need them; remaining and context.
_FRACTIONS = 3
_TOKENS = _FRACTIONS + 3 * POSITIONS
_COLUMNS = np.arange(_TOKENS + 2)
_ABOVE = np.repeat([0.5, 0.0], POSITIONS)
_BELOW = np.repeat([1.0, EVIDENCE_HALF], POSITIONS)
# Where features of a class begin.
ACCEPTANCE = 1 + _FRACTIONS
EVIDENCE = ACCEPTANCE + POSITIONS
PREVIOUS = EVIDENCE + POSITIONS
SINCE = len(_LINEAR)  # the first of the tails
SLACK_MIN = SINCE - 1
REMAINING = SINCE + POSITIONS
QUEUED = REMAINING + 2
BY_CLASS = len(_CLASS_FEATURES)


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


def observe(view: View, previous: PlanByClass, shifts: Shifts | None = None) -> Observation:
    """The observation of `view`: a fresh float32 [F] inside the bounds of `feature_table`.

    `previous` is the plan by class now in force; `shifts` remembers the views before this one of
    the episode, and now this one too. Without it nobody has arrived and nothing ever changed. A
    value that is not a number stays one, for `require_finite` to name. A class without active
    requests reads as: no slack, acceptance 0.5 with evidence 0, positions last proposed long ago.
    """
    limits, n_classes = view.limits, len(view.class_names)
    # Slots that do not decode count as those of one more class, of which nobody is told.
    slo_class = np.where(view.active, view.slo_class, n_classes)
    count = np.bincount(slo_class, minlength=n_classes)[:n_classes]
    sums, least = _over_slots(view, slo_class)
    plan = np.array(previous)

    low, size = lowest(n_classes), n_classes * BY_CLASS
    out = np.empty(len(low))
    block = out[:size].reshape(n_classes, -1)
    tails = block[:, SINCE:]
    most = np.maximum(count, 1)[:, None]
    block[:, 0] = count / limits.slots
    np.divide(sums[:, :_FRACTIONS], most, out=block[:, 1:ACCEPTANCE])
    above = sums[:, _FRACTIONS : _TOKENS - POSITIONS] + _ABOVE
    below = sums[:, _FRACTIONS + POSITIONS : _TOKENS] + _BELOW
    np.divide(above, below, out=block[:, ACCEPTANCE:PREVIOUS])
    block[:, PREVIOUS:SLACK_MIN] = plan.T / (*limits[1:], 1.0)
    tails[:, :POSITIONS] = least[:, 1:]
    np.divide(sums[:, _TOKENS:], most, out=tails[:, POSITIONS : POSITIONS + 2])
    ages = view.oldest_queued_s / class_token_s(view)
    tails[:, POSITIONS + 2 :] = np.array((view.queued, ages, *past_of(view, shifts, block))).T
    block[:, SLACK_MIN] = least[:, 0] * (count > 0)
    np.log1p(np.maximum(tails, 0.0, out=tails), out=tails)
    tails /= LOG_TOPS
    out[size:] = engine_wide(view, count.tolist(), predicted_steps(view, plan))
    np.minimum(np.maximum(out, low, out=out), 1.0, out=out)
    return out.astype(np.float32)


def class_token_s(view: View) -> Floats:
    """[C] seconds a token in which a class's queue is measured: its objective's, else unloaded."""
    objective_s = view.class_tpot_objective_s
    return np.where(np.isfinite(objective_s), objective_s, view.unloaded_tpot_s)


@cache
def lowest(n_classes: int) -> Floats:
    """[F] lower bounds; to be read."""
    by_class = [low for _, _, low, _ in _CLASS_FEATURES]
    return np.array(by_class * n_classes + [low for _, _, low, _ in _ENGINE_FEATURES])


def _over_slots(view: View, slo_class: Ints) -> tuple[Floats, Floats]:
    """By class, sums [C, _COLUMNS] and least values [C, 1 + POSITIONS] over the slots.

    `slo_class` [S] is C where nobody decodes. Sums are one count of weights, slot by slot as the
    fleet's kernel adds: `np.add.at` takes several times as long, and a matrix product would spread
    one class's NaN over all of them. The least are slack and iterations since a proposal.
    """
    slots, held = len(slo_class), min(POSITIONS, view.proposed.shape[1])
    classes = len(view.class_names)
    columns = np.zeros((slots, len(_COLUMNS)))
    slack = columns[:, 0]
    np.minimum(np.maximum(view.slack_tokens, -SLACK_TOKENS), SLACK_TOKENS, out=slack)
    slack /= SLACK_TOKENS
    columns[:, 1] = slack < 0
    columns[:, 2] = view.draft_confidence
    columns[:, _FRACTIONS : _FRACTIONS + held] = view.accepted[:, :held]
    for first in (_FRACTIONS + POSITIONS, _FRACTIONS + 2 * POSITIONS):
        columns[:, first : first + held] = view.proposed[:, :held]
    columns[:, _TOKENS] = view.remaining_tokens
    columns[:, _TOKENS + 1] = view.context_tokens
    places = (slo_class * len(_COLUMNS))[:, None] + _COLUMNS
    size = (classes + 1) * len(_COLUMNS)
    sums = cast("Floats", np.bincount(places.ravel(), columns.ravel(), size))

    columns = np.full((slots, 1 + POSITIONS), float(SINCE_ITERATIONS))
    columns[:, 0] = slack
    columns[:, 1 : 1 + held] = view.since_proposed[:, :held]
    least = np.full((classes + 1, 1 + POSITIONS), float(SINCE_ITERATIONS))
    np.minimum.at(least, slo_class, columns)
    return sums.reshape(classes + 1, -1)[:classes], least[:classes]


def past_of(view: View, shifts: Shifts | None, block: Floats) -> tuple[list[float], list[float]]:
    """By class, arrivals and time since a shift, unscaled, when `shifts` has seen the view.

    `block` [C, …] holds acceptance, its evidence and the iterations since a proposal.
    """
    if shifts is None:
        return [0.0] * len(block), [float(_TOPS[-1])] * len(block)
    token_s = view.unloaded_tpot_s
    shifts.look(view, *(block[:, i].tolist() for i in (ACCEPTANCE, EVIDENCE, SINCE)))
    return (
        [rate_hz * (SPAN_TOKEN_TIMES * token_s) for rate_hz in shifts.rate_hz],
        [(view.clock_s - changed_s) / token_s for changed_s in shifts.changed_s],
    )


def engine_wide(view: View, count: list[int], steps_s: tuple[float, float]) -> tuple[float, ...]:
    """The features of the engine as a whole, in the order of `_ENGINE_FEATURES`.

    `count` [C] requests decode; `steps_s` are those of `predicted_steps`.
    """
    slots, token_s, running = view.limits.slots, view.unloaded_tpot_s, sum(count)
    demand_hz = 0.0
    for members, objective_s in zip(count, view.class_tpot_objective_s.tolist(), strict=True):
        demand_hz += members / objective_s  # nothing where there is no objective
    ordinary_s, planned_s = steps_s
    return (
        running / slots,
        view.prefilling / slots,
        math.log1p(view.queued.sum()) / math.log1p(255),
        view.kv_free_tokens / max(view.kv_total_tokens, 1),
        math.log1p(view.memory_bytes / 2**30) / math.log1p(1023),
        math.log1p(view.power_watts) / math.log1p(16383),
        view.power_watts / view.power_cap_watts,
        float(view.power_is_measured),
        math.log1p(view.iteration_s / token_s) / LOG_STEPS,
        math.log1p(ordinary_s / token_s) / LOG_STEPS,
        math.log1p(planned_s / token_s) / LOG_STEPS,
        math.log1p(demand_hz * ordinary_s / max(running, 1)) / LOG_LOAD,
        float(view.pricing is not None),
    )
