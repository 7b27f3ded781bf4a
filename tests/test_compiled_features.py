"""The compiled features of a view are those that NumPy computes, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import Limits, View
from policies.actions import ActionTable, PlanByClass
from policies.compiled_features import observe_compiled
from policies.features import Observation, observe
from policies.learned import LearnedController, write_controller
from policies.shifts import Shifts
from tests.test_features import CLASSES, Priced, make_view
from tests.test_learned import controller_parts

TABLE = ActionTable(CLASSES)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 1e3, 1e7]), st.integers(1, 8))
def test_they_are_the_same(seed: int, scale: float, depth: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = Shifts(3), Shifts(3)
    for i in range(3):
        view = make_view(rng, scale, limits=Limits(max_depth=depth))
        view = view._replace(clock_s=i + 1.0, pricing=Priced() if i else None)  # type: ignore[arg-type]
        view.slo_class[~view.active] = 77
        plan = TABLE.decode(rng.integers(0, TABLE.nvec))
        np.testing.assert_array_equal(
            observe_compiled(view, plan, ours), observe(view, plan, theirs)
        )
        np.testing.assert_array_equal(observe_compiled(view, plan), observe(view, plan))


@pytest.mark.parametrize("name", ["slack_tokens", "draft_confidence", "accepted", "proposed"])
def test_what_is_no_number_stays_none_in_its_class_alone(name: str) -> None:
    view = make_view(np.random.default_rng(3))
    getattr(view, name)[np.flatnonzero(view.active & (view.slo_class == 1))[0]] = np.nan
    ours, theirs = observe_compiled(view, TABLE.off()), observe(view, TABLE.off())
    assert np.isnan(theirs).any()
    np.testing.assert_array_equal(ours, theirs)


def test_an_exported_controller_decides_alike_with_either(tmp_path: Path) -> None:
    write_controller(tmp_path / "controller", *controller_parts())
    one, other = (LearnedController.load(tmp_path / "controller") for _ in range(2))
    asked: list[View] = []

    def compiled(view: View, previous: PlanByClass, shifts: Shifts) -> Observation:
        asked.append(view)
        return observe_compiled(view, previous, shifts)

    other.features_of = compiled
    for seed in range(7):
        view = make_view(np.random.default_rng(seed), clock_s=seed + 1.0)
        for ours, theirs in zip(other.plan(view)[:4], one.plan(view)[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert len(asked) == 3  # it holds for three iterations
