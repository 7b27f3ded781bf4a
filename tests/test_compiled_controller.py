"""The compiled controller decides as the one of NumPy alone; features are compared elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UserError
from engine.profile.hardware_profile import PASSES_TABULATED
from engine.profile.pricing import BoundPricing
from engine.profile.published import open_profile
from engine.protocol import Limits, Plan, View
from policies.action_codec import BoxCodec, TierCodec
from policies.actions import sized_tiers
from policies.compiled_controller import CompiledController, is_compilable
from policies.features import observe
from policies.learned import LearnedController, write_controller
from policies.manifest import Manifest
from policies.network import NetworkShape
from tests.test_features import CLASSES, Priced, make_view
from tests.test_learned import TABLE, Weights, controller_parts

SIZED = sized_tiers(CLASSES)


def sized_parts(seed: int, activation: str = "tanh") -> tuple[Weights, Manifest]:
    """A random policy that also chooses how many requests may run."""
    weights, manifest = controller_parts(seed, activation)
    outputs, rng = int(SIZED.nvec.sum()), np.random.default_rng(seed)
    layers = (*manifest.network.layers[:-1], outputs)
    weights["action.weight"] = rng.normal(0, 0.3, (outputs, layers[-2])).astype(np.float32)
    weights["action.bias"] = rng.normal(0, 0.1, outputs).astype(np.float32)
    shape = NetworkShape(layers, activation)
    return weights, replace(manifest, network=shape, codec=TierCodec(SIZED))


def views(seed: int, count: int = 6) -> list[View]:
    """One after the other of an engine; some have a price."""
    rng = np.random.default_rng(seed)
    return [
        make_view(rng, clock_s=0.3 * (i + 1), pricing=Priced() if i % 2 else None)
        for i in range(count)
    ]


def bound_views(seed: int, behind: int) -> list[View]:
    """As `views`, priced by a profile; the drafter is up to `behind` tokens behind."""
    rng, profile, priced = np.random.default_rng(seed), open_profile("llama-8b-a100"), []
    for view in views(seed):
        context = np.where(view.active, view.context_tokens, 0)
        late = np.where(view.active, rng.integers(1, behind + 1, len(context)), 0)
        prices = BoundPricing(profile, view.active, context, late)
        priced.append(view._replace(pricing=prices))
    return priced


def assert_same(ours: Plan, theirs: Plan) -> None:
    """Every field of two plans."""
    for name, one, other in zip(Plan._fields, ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["tanh", "relu"]), st.booleans())
def test_it_plans_as_numpy_does(seed: int, activation: str, sizes_batch: bool) -> None:
    parts = sized_parts if sizes_batch else controller_parts
    weights, manifest = parts(seed, activation)
    ours, theirs = CompiledController(manifest, weights), LearnedController(manifest, weights)
    for episode in range(2):
        for view in views(seed + episode):
            view.slo_class[~view.active] = 77
            plan = ours.plan(view)
            assert_same(plan, theirs.plan(view._replace(slo_class=view.slo_class % 77)))
            assert plan.depth.base is not ours.plan(view).depth.base  # every plan is fresh
            theirs.plan(view)
            for one, other in zip(ours.in_force, theirs._actor.previous, strict=True):
                np.testing.assert_array_equal(one, other)
        ours.reset(Limits())
        theirs.reset(Limits())


@pytest.mark.parametrize("behind", (9, PASSES_TABULATED))
@pytest.mark.parametrize("seed", range(12))
def test_prices_are_those_of_the_profile(seed: int, behind: int) -> None:
    """Also where the profile has tabulated none for so many tokens."""
    weights, manifest = controller_parts(seed)
    manifest = replace(manifest, hold=1)
    ours, theirs = CompiledController(manifest, weights), LearnedController(manifest, weights)
    for view in bound_views(seed, behind):
        before = theirs._actor.previous
        assert_same(ours.plan(view), theirs.plan(view))
        expected = observe(view, before)[-4:]  # of what is priced
        np.testing.assert_array_equal(ours._own.observation[-4:], expected)


def test_without_a_normaliser_too() -> None:
    weights, manifest = controller_parts(5)
    manifest = replace(manifest, normaliser=None)
    ours, theirs = CompiledController(manifest, weights), LearnedController(manifest, weights)
    for view in views(3):
        assert_same(ours.plan(view), theirs.plan(view))


def test_what_it_remembers_matters() -> None:
    """Negative control: one that forgets between views plans otherwise somewhere."""
    weights, manifest = controller_parts(2)
    manifest = replace(manifest, hold=1)
    differs = False
    for seed in range(20):
        whole, forgetful = (CompiledController(manifest, weights) for _ in range(2))
        for view in views(seed):
            forgetful.reset(Limits())
            plans = whole.plan(view), forgetful.plan(view)
            differs |= any((a != b).any() for a, b in zip(plans[0][:3], plans[1][:3], strict=True))
    assert differs


def test_which_exports_it_takes(tmp_path: Path) -> None:
    weights, manifest = controller_parts()
    write_controller(tmp_path / "tiers", weights, manifest)
    assert isinstance(CompiledController.load(tmp_path / "tiers"), CompiledController)

    masked = replace(manifest, codec=TierCodec(TABLE, masked=True))
    write_controller(tmp_path / "masked", weights, masked)
    assert type(CompiledController.load(tmp_path / "masked")) is LearnedController
    outputs = BoxCodec(TABLE).outputs
    shape = NetworkShape((*manifest.network.layers[:-1], outputs))
    assert not is_compilable(replace(manifest, network=shape, codec=BoxCodec(TABLE)))
    with pytest.raises(TypeError, match="no such policy is compiled"):
        CompiledController(masked, weights)


def test_other_classes_and_bad_features_are_named() -> None:
    weights, manifest = controller_parts()
    controller = CompiledController(manifest, weights)
    view = views(0)[0]
    with pytest.raises(UserError, match="trained for the classes coding"):
        controller.plan(view._replace(class_names=("other",)))
    with pytest.raises(UserError, match=r"engine\.power is not a finite number"):
        controller.plan(view._replace(power_watts=float("nan")))
