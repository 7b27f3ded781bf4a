"""The summary of requests in NumPy, torch and compiled, what it must not mind, and its format."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UserError
from engine.protocol import Limits
from policies.action_codec import BoxCodec, TierCodec
from policies.compiled_by_request import CompiledByRequest
from policies.compiled_controller import CompiledController
from policies.compiled_requests import encoder_of, seen_requests, summarise
from policies.features import feature_table
from policies.learned import LearnedByRequest, LearnedController, write_controller
from policies.manifest import Manifest
from policies.network import NetworkShape
from policies.request_encoder import QUERIES, RequestEncoder, RequestShape
from policies.request_features import CLASS, observe_requests, request_table
from tests.test_compiled_controller import SIZED, assert_same, views
from tests.test_features import CLASSES, TABLE, make_view
from tests.test_learned import Weights, put, rewrite

F, K, C = len(feature_table(CLASSES)), len(request_table(CLASSES)), len(CLASSES)
SHAPES = [RequestShape((K, 8), 2), RequestShape((K, 6), 1), RequestShape((K, 12, 8), 4)]
Encode = Callable[[np.ndarray, np.ndarray], np.ndarray]


def parts(
    seed: int, shape: RequestShape = SHAPES[0], activation: str = "tanh", sizes_batch: bool = False
) -> tuple[Weights, Manifest]:
    """Weights and manifest of a random policy that observes requests."""
    codec = TierCodec(SIZED if sizes_batch else TABLE)
    network = NetworkShape((F + shape.outputs(C), 16, codec.outputs), activation)
    manifest = Manifest("ppo", network, codec, requests=shape, hold=2)
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.normal(0, 0.5, size).astype(np.float32)
        for name, size in manifest.tensor_shapes().items()
    }
    return weights, manifest


def drawn(seed: int, slots: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Rows of requests, and who is there."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (slots, K)).astype(np.float32)
    rows[:, CLASS:] = np.eye(C, dtype=np.float32)[rng.integers(C, size=slots)]
    mask = (rng.random(slots) < rng.random()).astype(np.float32)
    return rows * mask[:, None], mask


def of_numpy(weights: Weights, shape: RequestShape) -> Encode:
    return RequestEncoder(shape, weights).summary


def of_torch(weights: Weights, shape: RequestShape) -> Encode:
    import torch
    from gymnasium import spaces

    from train.algorithms.request_encoder import RequestEncoder as OfTorch

    sizes = {"engine": (F,), "requests": (9, K), "mask": (9,)}
    space = spaces.Dict({name: spaces.Box(-1, 1, size) for name, size in sizes.items()})
    encoder = OfTorch(space, shape.layers[1:], shape.heads)
    assert encoder.shape == shape and encoder.features_dim == F + shape.outputs(C)
    named = {"queries": weights[QUERIES]}
    for i in range(len(shape.layers) - 1):
        for part in ("weight", "bias"):
            named[f"layers.{i}.{part}"] = weights[f"request.{i}.{part}"]
    encoder.load_state_dict({name: torch.from_numpy(of) for name, of in named.items()})

    def encode(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
        of_engine = np.zeros((1, F), np.float32)
        seen = {"engine": of_engine, "requests": rows[None], "mask": mask[None]}
        with torch.no_grad():
            found = encoder({name: torch.from_numpy(of) for name, of in seen.items()})
        assert not found[0, :F].any()
        return found[0, F:].numpy()

    return encode


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(SHAPES))
def test_numpys_summary_is_torchs(seed: int, shape: RequestShape) -> None:
    weights, _ = parts(seed, shape)
    ours, theirs = (make(weights, shape) for make in (of_numpy, of_torch))
    rows, mask = drawn(seed)
    assert ours(rows, mask).dtype == np.float32
    np.testing.assert_allclose(ours(rows, mask), theirs(rows, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [of_numpy, of_torch])
def test_neither_order_nor_free_slots_matter(make: Any) -> None:
    weights, manifest = parts(3)
    assert manifest.requests is not None
    encode = make(weights, manifest.requests)
    changed = 0.0
    for seed in range(20):
        rows, mask = drawn(seed)
        expected = encode(rows, mask)
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(rows))
        np.testing.assert_allclose(encode(rows[order], mask[order]), expected, atol=1e-5)
        free = rng.uniform(-1, 1, rows.shape).astype(np.float32)
        filled = np.where(mask[:, None] > 0, rows, free)
        np.testing.assert_allclose(encode(filled, mask), expected, atol=1e-5)
        wider = np.concatenate([rows, np.zeros_like(rows)]), np.concatenate([mask, 0 * mask])
        np.testing.assert_allclose(encode(*wider), expected, atol=1e-5)
        # The control: rows of those who are there do matter.
        rows[:, 0] += 0.5
        changed = max(changed, float(np.abs(encode(rows, mask) - expected).max()))
    assert changed > 0.01


def test_it_is_0_for_nobody_and_without_queries_the_mean() -> None:
    weights, manifest = parts(4)
    weights[QUERIES][:] = 0.0
    encoder = LearnedByRequest(manifest, weights).encoder
    rows, mask = drawn(1)
    mask[:], rows[:, CLASS:] = 1.0, np.eye(C, dtype=np.float32)[1]
    found = encoder.summary(rows, mask).reshape(C, -1)
    encoded = np.maximum(rows @ weights["request.0.weight"].T + weights["request.0.bias"], 0)
    np.testing.assert_allclose(found[1], encoded.mean(axis=0), rtol=1e-4, atol=1e-6)
    assert not found[[0, 2]].any() and not encoder.summary(rows, 0 * mask).any()


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(SHAPES),
    st.sampled_from([0.0, 1.0, 1e4]),
)
def test_the_compiled_summary_is_numpys(seed: int, shape: RequestShape, scale: float) -> None:
    weights, _ = parts(seed, shape)
    rng = np.random.default_rng(seed)
    view = make_view(rng, scale, limits=Limits(slots=7, max_depth=int(rng.integers(1, 9))))
    summary = np.full(shape.outputs(C), np.nan, np.float32)
    encoder = encoder_of(shape, weights, C)
    for array in (view.slack_tokens, view.proposed, view.draft_confidence):
        array[~view.active] = np.nan  # nobody looks there
    assert summarise(seen_requests(view), encoder, summary)
    expected = of_numpy(weights, shape)(*observe_requests(view))
    np.testing.assert_allclose(summary, expected, rtol=1e-4, atol=2e-5)
    if view.active.any():  # the last row that it saw, to the last bit
        last = observe_requests(view)[0][np.flatnonzero(view.active)[-1]]
        kept = np.clip(encoder.exact, [-1] + [0] * (K - 1), 1).astype(np.float32)
        np.testing.assert_array_equal(kept, last)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["tanh", "relu"]), st.booleans())
def test_the_compiled_controller_plans_as_numpys(
    seed: int, activation: str, sizes_batch: bool
) -> None:
    weights, manifest = parts(seed, activation=activation, sizes_batch=sizes_batch)
    ours, theirs = CompiledByRequest(manifest, weights), LearnedByRequest(manifest, weights)
    for episode in range(2):
        for view in views(seed + episode):
            assert_same(ours.plan(view), theirs.plan(view))
        ours.reset(Limits())
        theirs.reset(Limits())


def test_requests_matter_to_the_plan() -> None:
    """The control: of two views alike but for one request's past, plans differ somewhere."""
    weights, manifest = parts(5)
    manifest, differs = replace(manifest, hold=1), False
    controller = LearnedByRequest(manifest, weights)
    for view in views(2, 30):
        controller.reset(Limits())
        before = controller.plan(view)
        controller.reset(Limits())
        other = controller.plan(view._replace(queue_age_s=view.queue_age_s + 9.0))
        differs |= any((a != b).any() for a, b in zip(before[:3], other[:3], strict=True))
    assert differs, "no feature of classes knows who queued before"


def test_what_is_no_number_is_named() -> None:
    for kind in (CompiledByRequest, LearnedByRequest):
        controller = kind(*parts(0)[::-1])
        view = make_view(np.random.default_rng(4))
        view.queue_age_s[np.flatnonzero(view.active)[1]] = np.nan
        with pytest.raises(UserError, match=r"request\.queue_age of slot \d+ is not a finite"):
            controller.plan(view)
        with pytest.raises(UserError, match="trained for the classes coding"):
            controller.plan(view._replace(class_names=("other",)))


def test_a_folder_is_read_by_who_can_observe_it(tmp_path: Path) -> None:
    weights, manifest = parts(1)
    write_controller(tmp_path / "c", weights, manifest)
    for kind, made in (
        (LearnedController, LearnedByRequest),
        (CompiledByRequest, CompiledByRequest),
    ):
        loaded = kind.load(tmp_path / "c")
        assert type(loaded) is made and replace(loaded.manifest, files={}) == manifest
    with pytest.raises(TypeError, match="does not observe"):
        LearnedController(manifest, weights)
    with pytest.raises(TypeError):
        CompiledController(manifest, weights)
    plain = replace(manifest, requests=None, network=NetworkShape((F, 4, int(TABLE.nvec.sum()))))
    assert CompiledByRequest.kind_of(plain) is CompiledController
    with pytest.raises(TypeError):
        CompiledByRequest(plain, {n: np.zeros(s, "f4") for n, s in plain.tensor_shapes().items()})


def test_other_exports_are_written_as_they_always_were() -> None:
    _, manifest = parts(1)
    plain = replace(manifest, requests=None, network=NetworkShape((F, 4, int(TABLE.nvec.sum()))))
    assert "requests" not in json.loads(plain.to_json())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("requests.layers", [K, 9]), "2 heads; expected a divisor"),
        (put("requests.layers", [K, 4]), f"expected {F + 12}, one for each feature and 12 of"),
        (put("requests.layers", [K + 1, 8]), f"rows of {K + 1}; expected {K}"),
        (put("requests.layers", [8]), "at least two"),
        (put("requests.layers", [K, 8.0]), "whole numbers"),
        (put("requests.layers", 8), "no list"),
        (put("requests.heads", 4), r"request\.queries has shape \(2, 8\)"),
        (put("requests.heads", 0), "0 heads"),
        (put("requests.feature_hash", "00"), "other features of requests"),
        (put("requests.extra", 1), "extra is unknown"),
        (put("requests", []), "requests is list"),
        (put("codec.masked", True), "over tiers alone"),
        (put("network.lstm", 4), "over tiers alone"),
        (lambda v: v.pop("requests"), f"expected {F}, one for each feature"),
    ],
)
def test_changed_manifests_are_refused(
    change: Callable[[dict], None], says: str, tmp_path: Path
) -> None:
    write_controller(tmp_path / "c", *parts(1))
    rewrite(tmp_path / "c", change)
    for kind in (LearnedController, CompiledByRequest):
        with pytest.raises(UserError, match=says) as caught:
            kind.load(tmp_path / "c")
        assert "\n" not in str(caught.value)


def test_other_policies_and_tensors_are_refused(tmp_path: Path) -> None:
    weights, manifest = parts(1)
    layers = (*manifest.network.layers[:-1], BoxCodec(TABLE).outputs)
    with pytest.raises(UserError, match="over tiers alone"):
        replace(manifest, codec=BoxCodec(TABLE), network=NetworkShape(layers))
    for name, of in (("request.0.bias", np.zeros(9, np.float32)), (QUERIES, np.full((2, 8), 1.0))):
        with pytest.raises(UserError, match=f"tensor {name} has shape"):
            write_controller(tmp_path / "c", {**weights, name: of}, manifest)
    del weights[QUERIES]
    with pytest.raises(UserError, match=r"tensor request\.queries is missing"):
        CompiledByRequest(manifest, weights)
