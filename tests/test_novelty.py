"""Views that a controller was not made for: who tells them, and what a shield does then."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.errors import UserError
from engine.protocol import View
from policies.action_codec import TierCodec
from policies.features import feature_table, observe
from policies.held import held
from policies.manifest import Manifest
from policies.network import NetworkShape
from policies.novelty import ALARMS, RECENT, TrainingViews, novelty_of, observed_of
from tests.test_features import TABLE, make_view
from tests.test_shielded import FALLBACK, GIVEN, VIEW, Given, acted, depth, guarded


class Knowing(Given):
    """Knows its own range."""

    novelty: bool | None = False

    def novel(self, view: View) -> bool:
        if self.novelty is None:
            raise ZeroDivisionError("in the hook")
        return self.novelty


def test_novel_views_are_anothers_until_they_are_gone() -> None:
    given = Knowing()
    controller = guarded(held(given, 1), dwell=2)  # the hook is found inside
    assert acted(controller, 2) == [GIVEN] * 2
    given.novelty = True
    assert acted(controller, 5) == [FALLBACK] * 5  # longer than the dwell
    given.novelty = False
    assert acted(controller, 2) == [GIVEN] * 2
    assert controller.fallbacks["novel"] == 1


def test_a_hook_that_raises_is_an_error() -> None:
    given = Knowing()
    given.novelty = None
    controller = guarded(given)
    assert depth(controller) == FALLBACK and controller.fallbacks["error"] == 1


def manifest(spread: float) -> Manifest:
    """Of a controller that was trained on views like VIEW."""
    count = len(feature_table(TABLE.class_names))
    middle = observe(VIEW, TABLE.off())
    rows = np.random.default_rng(0).normal(middle, spread, (4000, count)).astype(np.float32)
    observed = observed_of(rows, feature_table(TABLE.class_names))
    shape = NetworkShape((count, int(TABLE.nvec.sum())))
    return Manifest("m", shape, TierCodec(TABLE), training={"observed": observed})


def test_training_views_are_those_near_the_mean() -> None:
    views = TrainingViews(manifest(0.05))
    assert views.score(VIEW) == pytest.approx(0.0, abs=1e-3)
    limit = manifest(0.05).training["observed"]["limit"]
    assert 1.0 < limit < 1.6  # the mean of a hundred squares, nearly always
    far = make_view(np.random.default_rng(7), 9.0)
    assert views.score(far) > 3.0
    told = [views.novel(far) for _ in range(RECENT)]
    assert told == [False] * (ALARMS - 1) + [True] * (RECENT - ALARMS + 1)
    calm = [views.novel(VIEW) for _ in range(RECENT)]
    assert calm[-1] is False
    assert math.isnan(views.score(VIEW._replace(power_watts=math.nan)))


def test_an_export_that_saw_no_held_out_episodes_knows_no_range() -> None:
    class Export(Given):
        manifest: Manifest

    export = Export()
    export.manifest = manifest(0.05)
    assert novelty_of(export) is not None
    export.manifest.training["observed"] = None
    assert novelty_of(export) is None and novelty_of(Given()) is None


@pytest.mark.parametrize(
    ("key", "value"), [("mean", [0.0]), ("limit", "high"), ("variance", None), ("mean", ["x"])]
)
def test_what_was_observed_is_checked(key: str, value: object) -> None:
    damaged = manifest(0.05)
    damaged.training["observed"][key] = value
    with pytest.raises(UserError, match="export the controller again"):
        TrainingViews(damaged)
