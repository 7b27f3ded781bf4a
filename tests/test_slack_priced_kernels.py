"""Prices by size and the order of nodes: slack-priced's kernels against NumPy, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.kernels.descending import descending
from engine.kernels.forecast import class_layers, learn_layers, likenesses, node_values
from engine.kernels.learned_selection import learned_selection
from engine.kernels.planned_shapes import planned_shapes
from engine.kernels.priced_select import priced_select
from engine.kernels.priced_sweep import sweep_shapes
from engine.kernels.slack_weights import drafting_s
from engine.profile.pricing import BoundPricing
from engine.replay.server import ReplayConfig, ReplayServer
from tests.twins.price_table import price_table


def test_the_order_is_that_of_a_stable_sort() -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 2, 7, 60, 900):
        for values in (
            rng.random(count) ** 3,
            rng.choice([0.0, 0.25, 0.3], count),
            rng.random(count) * 10.0 ** rng.integers(-20, 20, count),
        ):
            assert (descending(values) == np.argsort(-values, kind="stable")).all()


@pytest.mark.parametrize("power", [{}, {"stages": {}, "idle_watts": 0.0}, {"idle_watts": 55.0}])
def test_tables_are_what_the_profile_says_pass_by_pass(power: dict[str, Any]) -> None:
    found = ReplayServer.load(ReplayConfig(slots=4, profile="llama-8b-a100")).profile
    assert found is not None
    profile = replace(found, power=replace(found.power, **power))
    rng, jumped = np.random.default_rng(1), set()
    for nodes in (0, 8, 512, 9000):  # the last are more than are tabulated
        for slots in (1, 5, 64, 3000):
            decoding = rng.random(slots) < 0.7
            decoding[0] = True
            context = np.where(decoding, rng.integers(1, 3000, slots), 0)
            undrafted = np.minimum(context, rng.choice([1, 9, 2000], slots))
            widths = np.array([1, 2, 4])
            table = BoundPricing(profile, decoding, context, undrafted).table(nodes, widths)
            twin = price_table(profile, decoding, context, undrafted, nodes, widths)
            parts: Any = zip(table, twin, strict=True)
            for got, expected in parts:
                assert np.array_equal(got, expected)
            jumped.add(float(table.draft_first_s[1]))
    assert len(jumped) > 4


SLOTS, CLASSES, DEPTH, RANKS, NODES, CANDIDATES = 6, 2, 4, 3, 12, 20
NO_CAP = float("inf")


def prices(rng: np.random.Generator) -> dict[str, Any]:
    """What steps cost, rising with their size."""
    return {
        "verify_s": 0.02 + np.cumsum(rng.random(SLOTS * NODES + 1)) * 1e-4,
        "verify_joules": 3.0 + np.cumsum(rng.random(SLOTS * NODES + 1)) * 1e-2,
        "first_s": np.array([0.002, 1e-4]),
        "next_s": 0.001 + np.sort(rng.random((2, SLOTS + 1)), axis=1) * 1e-3,
    }


def test_planned_shapes_are_the_sweeps_of_what_is_forecast() -> None:
    rng, drafted = np.random.default_rng(2), 0
    for _ in range(40):
        seen = rng.random((CLASSES, DEPTH, RANKS)) * 9
        total, scale = seen * rng.random(seen.shape), np.sort(rng.random(DEPTH) + 0.5)[::-1].copy()
        active, slo_class = rng.random(SLOTS) < 0.8, rng.integers(0, CLASSES, SLOTS)
        proposed = rng.random((SLOTS, DEPTH)) * 5
        accepted, left = proposed * rng.random(proposed.shape), rng.integers(1, 9, SLOTS)
        weight = np.where(active, rng.random(SLOTS), 0.0)
        base, widths, undrafted = float(weight.sum()), np.array([1, 3]), rng.integers(1, 30, SLOTS)
        of = prices(rng)
        depth, width, nodes, taken, seconds = planned_shapes(
            seen, total, scale, 2.0, 0.7, 0.5, 8.0, 0.05, active, slo_class, accepted, proposed,
            left, NODES, weight, base, widths, of["verify_s"], of["verify_joules"], of["first_s"],
            of["next_s"], 40.0, undrafted, 8.0, 0.001, NO_CAP,
        )  # fmt: skip
        value = node_values(
            class_layers(seen, total, scale, 2.0, 0.7, 0.5), slo_class, weight,
            likenesses(active, accepted, proposed, 8.0), left, 0.05,
        )  # fmt: skip
        _, swept_width, swept, swept_depth, swept_nodes = sweep_shapes(
            value, base, widths, of["verify_s"], of["verify_joules"], of["first_s"], of["next_s"],
            40.0, 1 + (undrafted - 1) / 8.0, np.where(active, NODES, 0), 0.001, NO_CAP,
        )  # fmt: skip
        assert (depth == swept_depth).all() and (nodes == swept_nodes).all()
        assert taken == swept and (width == max(swept_width, 1)).all()
        row = of["next_s"][int(swept_width == 3)]
        assert seconds == drafting_s(swept_depth, undrafted, of["first_s"], row)
        drafted += taken
    assert drafted > 100


def test_a_learned_selection_learns_and_then_selects() -> None:
    rng, selected = np.random.default_rng(3), 0
    for _ in range(40):
        size = rng.integers(0, CANDIDATES + 1, SLOTS)
        depth = np.sort(rng.integers(1, DEPTH + 1, (SLOTS, CANDIDATES)), axis=1)
        chance = np.sort(rng.random((SLOTS, CANDIDATES)), axis=1)[:, ::-1].copy()
        active, slo_class = size > 3, rng.integers(0, CLASSES, SLOTS)
        weight, scale = np.where(active, rng.random(SLOTS), 0.0), np.linspace(1.0, 0.7, DEPTH)
        context, base, of = rng.integers(1, 99, SLOTS), float(weight.sum()), prices(rng)
        seen = rng.random((CLASSES, DEPTH, RANKS))
        total, joules = seen * 0.5, of["verify_joules"]
        learned = seen.copy(), total.copy()
        kept, expected = learned_selection(
            active, slo_class, size, depth, chance, 0.9, *learned, scale, weight, base, 0.02, 0.004,
            of["verify_s"], joules, 40.0, 0.001, NO_CAP, NODES, context, 16, 5,
        )  # fmt: skip
        twin = seen.copy(), total.copy()
        learn_layers(active, slo_class, size, depth, chance, 0.9, *twin)
        assert all((ours == theirs).all() for ours, theirs in zip(learned, twin, strict=True))
        room = 16 - 1 - context % 16  # of the page in which the root lies
        wanted, mass = priced_select(
            weight, base, scale, 0.02, 0.004, 0.004 * 40.0, of["verify_s"], joules, 0.001, NO_CAP,
            np.full(SLOTS, NODES), room, 16, 5, size, depth, chance,
        )  # fmt: skip
        assert (kept == wanted).all() and (expected == mass).all()
        selected += int(kept.sum())
    assert selected > 100
