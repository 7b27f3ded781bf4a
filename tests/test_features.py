"""The observation: bounds, meaning, freshness, and the schema that an export is tied to.

`make_view` builds random views for other policy tests too.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UserError
from engine.protocol import Limits, Plan, View
from policies.actions import ActionTable
from policies.features import (
    POSITIONS,
    bounds,
    feature_table,
    observe,
    require_finite,
    schema_hash,
)

CLASSES = ("coding", "chat", "summarization")
TABLE = ActionTable(CLASSES)


def make_view(rng: np.random.Generator, scale: float = 1.0, **changes: Any) -> View:
    """A random view of 16 slots and three classes; `scale` above 1 strains the bounds."""
    limits = changes.pop("limits", Limits())
    slots, depth = limits.slots, limits.max_depth
    objective = rng.uniform(0.01, 0.2, slots)
    tokens = rng.integers(0, 200, slots)
    seconds = rng.exponential(5.0 * scale, slots)
    proposed = rng.exponential(4.0 * scale, (slots, depth))
    values: dict[str, Any] = {
        "active": rng.random(slots) < 0.7,
        "request": np.arange(slots),
        "slo_class": rng.integers(0, 3, slots),
        "tokens_out": tokens,
        "decode_time_s": seconds,
        "tpot_objective_s": objective,
        "slack_tokens": tokens - seconds / objective,
        "queue_age_s": rng.exponential(scale, slots),
        "context_tokens": rng.integers(1, 2 + int(1000 * scale), slots),
        "remaining_tokens": rng.integers(0, 1 + int(300 * scale), slots),
        "proposed": proposed,
        "accepted": proposed * rng.random((slots, depth)),
        "since_proposed": rng.integers(0, 1 + int(100 * scale), (slots, depth)),
        "draft_confidence": rng.random(slots),
        "class_names": CLASSES,
        "class_tpot_objective_s": np.array([0.05, 0.1, np.inf]),
        "queued": rng.integers(0, 1 + int(20 * scale), 3),
        "oldest_queued_s": rng.exponential(scale, 3),
        "prefilling": int(rng.integers(0, slots)),
        "kv_free_tokens": int(rng.integers(0, 16384)),
        "kv_total_tokens": 16384,
        "kv_free_pages": 3,
        "kv_total_pages": 16,
        "memory_bytes": int(5e8 * scale),
        "power_watts": float(rng.exponential(100 * scale)),
        "power_cap_watts": float(rng.choice([np.inf, 150.0])),
        "power_is_measured": bool(rng.random() < 0.5),
        "clock_s": float(rng.exponential(100)),
        "iteration_s": float(rng.exponential(0.1 * scale)),
        "unloaded_tpot_s": 0.05,
        "limits": limits,
    }
    return View(**{**values, **changes})


def named(view: View, plan: Any = None) -> dict[str, float]:
    """Observation by feature name."""
    observation = observe(view, plan or TABLE.off())
    return dict(zip((f.name for f in feature_table(CLASSES)), observation.tolist(), strict=True))


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 1e3, 1e7]), st.booleans())
def test_observation_is_finite_bounded_and_fresh(seed: int, scale: float, idle: bool) -> None:
    rng = np.random.default_rng(seed)
    view = make_view(rng, scale)
    if idle:
        view = view._replace(active=np.zeros_like(view.active))
    plan = TABLE.decode(rng.integers(0, TABLE.nvec))
    features = feature_table(CLASSES)
    low, high = bounds(features)
    first, second = observe(view, plan), observe(view, plan)
    assert first.dtype == np.float32 and first.shape == (len(features),)
    assert np.isfinite(first).all() and (first >= low).all() and (first <= high).all()
    assert (first == second).all() and not np.shares_memory(first, second)


def test_garbage_in_idle_slots_is_not_seen() -> None:
    view = make_view(np.random.default_rng(1))
    clean = observe(view, TABLE.off())
    for array in (view.slack_tokens, view.proposed, view.accepted, view.draft_confidence):
        array[~view.active] = np.nan
    view.slo_class[~view.active] = 77
    view.since_proposed[~view.active] = -5
    assert (observe(view, TABLE.off()) == clean).all()


def test_values() -> None:
    rng = np.random.default_rng(2)
    active, slo_class = np.zeros(16, bool), np.full(16, 2)
    active[:3], slo_class[:2] = True, 0
    slack, proposed, accepted = np.zeros(16), np.zeros((16, 8)), np.zeros((16, 8))
    slack[:3] = [-8, 40, 4]  # 40 counts as 32
    proposed[:2, 0], accepted[:2, 0] = [4, 8], [2, 6]
    since = np.full((16, 8), 255)
    since[1, 1] = 0
    plan = TABLE.decode(np.array([5, 3, 4, 0] + [0] * 8))
    view = make_view(
        rng,
        active=active,
        slo_class=slo_class,
        slack_tokens=slack,
        proposed=proposed,
        accepted=accepted,
        since_proposed=since,
        oldest_queued_s=np.array([0.0, 0.0, 4095 * 0.05]),
        kv_free_tokens=4096,
        power_watts=30.0,
        power_cap_watts=60.0,
    )
    got = named(view, plan)
    expected = {
        "coding.active": 2 / 16,
        "coding.slack_mean": 12 / 32,
        "coding.slack_min": -8 / 32,
        "coding.late": 0.5,
        "coding.acceptance_1": 8.5 / 13,
        "coding.evidence_1": 12 / 16,
        "coding.acceptance_2": 0.5,
        "coding.evidence_2": 0,
        "coding.since_1": 1,
        "coding.since_2": 0,
        "coding.previous_depth": 6 / 8,
        "coding.previous_width": 1,
        "coding.previous_nodes": 0.5,
        "coding.previous_margin": 1,
        "chat.active": 0,
        "chat.slack_min": 0,
        "chat.since_1": 1,
        "chat.previous_depth": 0,
        "summarization.slack_mean": 4 / 32,
        "summarization.queue_age": 1,  # no objective: in unloaded token times
        "engine.running": 3 / 16,
        "engine.kv_free": 0.25,
        "engine.power_cap": 0.5,
    }
    assert {name: got[name] for name in expected} == pytest.approx(expected, abs=1e-6)


class Priced:
    """A step of plans costs what can be added up by hand."""

    def __init__(self) -> None:
        self.asked: list[Plan] = []

    def step_s(self, plan: Plan) -> float:
        self.asked.append(plan)
        return 0.1 + 0.01 * float(plan.depth.sum()) + 0.001 * float(plan.nodes.sum())


def test_predicted_cost_and_load() -> None:
    active, slo_class = np.zeros(16, bool), np.full(16, 77)
    active[[2, 9]], slo_class[[2, 9]] = True, [0, 2]  # an objective of 0.05 s, and none
    pricing: Any = Priced()
    view = make_view(
        np.random.default_rng(6), active=active, slo_class=slo_class, pricing=pricing
    )._replace(limits=Limits(max_nodes=8))
    plan = TABLE.decode(np.array([2, 3, 4, 0] + [0] * 8))  # 32 nodes, of which 8 are allowed
    got = named(view, plan)
    ordinary, planned = pricing.asked
    assert not ordinary.depth.any() and not ordinary.nodes.any() and (ordinary.margin == 1).all()
    assert planned.depth[2] == 2 and planned.depth[9] == 0
    assert planned.nodes[2] == 8 and planned.nodes[9] == 2

    def steps(seconds: float) -> float:
        return float(np.log1p(seconds / 0.05) / np.log1p(63))

    assert got["engine.is_priced"] == 1
    assert got["engine.ordinary_step"] == pytest.approx(steps(0.1))
    assert got["engine.previous_step"] == pytest.approx(steps(Priced().step_s(planned)))
    # One of two running requests asks for two tokens in the 0.1 s that bring each of them one.
    assert got["engine.load"] == pytest.approx(np.log1p(1.0) / np.log1p(15))

    pricing.asked.clear()
    off = named(view)
    assert len(pricing.asked) == 1 and off["engine.previous_step"] == off["engine.ordinary_step"]
    unknown = named(view._replace(pricing=None), plan)
    for name in ("is_priced", "ordinary_step", "previous_step", "load"):
        assert unknown[f"engine.{name}"] == 0


def test_shallow_engines_keep_the_schema() -> None:
    got = named(make_view(np.random.default_rng(4), limits=Limits(max_depth=3)))
    assert got[f"coding.evidence_{POSITIONS}"] == 0 and got[f"coding.since_{POSITIONS}"] == 1


def test_a_nan_is_named() -> None:
    view = make_view(np.random.default_rng(5))
    view.draft_confidence[view.active & (view.slo_class == 1)] = np.nan
    features = feature_table(CLASSES)
    with pytest.raises(UserError, match=r"chat\.draft_confidence"):
        require_finite(observe(view, TABLE.off()), features)
    require_finite(observe(make_view(np.random.default_rng(5)), TABLE.off()), features)


def test_hash_tells_name_unit_and_order_apart() -> None:
    features = feature_table(CLASSES)
    assert len({f.name for f in features}) == len(features)
    swapped = (features[1], features[0], *features[2:])
    other_unit = (features[0]._replace(unit="ms"), *features[1:])
    hashes = {schema_hash(f) for f in (features, swapped, other_unit, feature_table(CLASSES[:2]))}
    assert len(hashes) == 4 and schema_hash(feature_table(CLASSES)) == schema_hash(features)
