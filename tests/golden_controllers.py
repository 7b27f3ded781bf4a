"""Writes tests/golden: an exported controller for each kind, and what it decides.

`python -m tests.golden_controllers` does so after the format or the features have changed on
purpose. Observations are whole sixteenths within the features' bounds, kept as one byte each.
Weights are such that no two outputs that compete for a choice are nearly equal: another processor
adds in another order, and must still choose the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from engine.protocol import Limits
from policies.action_codec import ActionCodec, BoxCodec, TierCodec, presets_of
from policies.actions import ActionTable
from policies.features import bounds, feature_table
from policies.learned import LearnedController, write_controller
from policies.manifest import Manifest
from policies.network import NetworkShape
from policies.price_actions import PriceActions
from policies.request_encoder import RequestShape
from policies.request_features import CLASS, request_table, row_bounds
from tests.tiny_recording import CLASSES

FOLDER = Path(__file__).resolve().parent / "golden"
DECIDED = FOLDER / "decisions.safetensors"
OBSERVATIONS, STEPS, SLOTS = 50, 16, 4
LEAST_GAP, FEWEST = 1e-4, 5  # between outputs, and decisions that differ
TABLE = ActionTable(CLASSES)
PRESETS = ActionTable(CLASSES, depths=(0, 1, 2), widths=(1, 4), nodes=(2, 4))
KINDS: dict[str, tuple[ActionCodec, NetworkShape]] = {
    name: (codec, NetworkShape((len(feature_table(CLASSES)), *hidden, codec.outputs), act, lstm))
    for name, codec, hidden, act, lstm in (
        ("tiers", TierCodec(TABLE), (3,), "tanh", 0),
        ("masked", TierCodec(TABLE, masked=True), (3,), "tanh", 0),
        ("presets", presets_of(PRESETS, [CLASSES[:1], CLASSES[1:]]), (6,), "relu", 0),
        ("box", BoxCodec(TABLE), (3,), "tanh", 0),
        ("recurrent", TierCodec(TABLE), (3,), "tanh", 2),
        ("prices", TierCodec(PriceActions(CLASSES)), (3,), "tanh", 0),
    )
}
REQUESTS = RequestShape((len(request_table(CLASSES)), 4), 2)
BY_REQUEST = "by-request"
_inputs = len(feature_table(CLASSES)) + REQUESTS.outputs(len(CLASSES))
KINDS[BY_REQUEST] = TierCodec(TABLE), NetworkShape((_inputs, 3, int(TABLE.nvec.sum())))


def kept_observations(kind: str) -> list[Any]:
    """The 50 fixed ones, as the file has them."""
    kept = safetensors.numpy.load_file(DECIDED)
    return told(kind, kept["observations"], kept["requests"])


def told(kind: str, of_engine: np.ndarray, requests: np.ndarray) -> list[Any]:
    """As a controller of that kind observes what is kept in sixteenths."""
    engines, rows = (kept.astype(np.float32) / STEPS for kept in (of_engine, requests))
    if kind != BY_REQUEST:
        return list(engines)
    # A slot is free where its row names no class.
    masks = np.asarray(rows[..., CLASS:].any(axis=-1), np.float32)
    parts = zip(engines, rows, masks, strict=True)
    return [dict(zip(("engine", "requests", "mask"), of, strict=True)) for of in parts]


def drawn_observations() -> np.ndarray:
    """[50, F] in sixteenths, one byte each."""
    low, high = (np.rint(STEPS * bound).astype(int) for bound in bounds(feature_table(CLASSES)))
    rng = np.random.default_rng(0)
    return rng.integers(low, high, (OBSERVATIONS, len(low)), endpoint=True).astype(np.int8)


def drawn_requests() -> np.ndarray:
    """[50, S, K] in sixteenths, one byte each; rows of free slots are 0."""
    both = row_bounds(request_table(CLASSES), SLOTS)
    low, high = (np.rint(STEPS * bound).astype(int) for bound in both)
    rng = np.random.default_rng(0)
    rows = rng.integers(low, high, (OBSERVATIONS, *low.shape), endpoint=True)
    classes = rng.integers(len(CLASSES) + 1, size=rows.shape[:-1])
    rows[..., CLASS:] = STEPS * np.eye(len(CLASSES) + 1, dtype=int)[classes][..., :-1]
    return (rows * (classes < len(CLASSES))[..., None]).astype(np.int8)


def gap(codec: ActionCodec, outputs: np.ndarray) -> float:
    """How far the outputs are from another choice."""
    if isinstance(codec, BoxCodec):
        tiers = codec.table.nvec[codec.table.nvec > 1]
        at = (np.tanh(outputs) + 1.0) * 0.5 * tiers
        return float(np.abs(at - np.rint(at)).min())
    parts = [outputs]
    if isinstance(codec, TierCodec):
        nvec = codec.table.nvec
        parts = [p for p in np.split(outputs, np.cumsum(nvec)[:-1]) if len(p) > 1]
    return min(float(np.diff(np.sort(part)[-2:])[0]) for part in parts)


def random_controller(kind: str, seed: int) -> tuple[dict[str, np.ndarray], Manifest]:
    """Weights and manifest of one kind."""
    codec, shape = KINDS[kind]
    requests = REQUESTS if kind == BY_REQUEST else None
    training = {"algorithm": kind, "updates": 1, "made": "by tests/golden_controllers.py"}
    manifest = Manifest(kind, shape, codec, requests=requests, hold=2, training=training)
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.normal(0.0, 2.0 / np.sqrt(size[-1]), size).astype(np.float32)
        for name, size in manifest.tensor_shapes().items()
    }
    return weights, manifest


def main() -> None:
    """Write all of it."""
    kept = {"observations": drawn_observations(), "requests": drawn_requests()}
    decided: dict[str, np.ndarray] = {}
    for kind, (codec, _) in KINDS.items():
        rows = told(kind, kept["observations"], kept["requests"])
        for seed in range(1000):
            weights, manifest = random_controller(kind, seed)
            controller = LearnedController.kind_of(manifest)(manifest, weights)
            outputs = [controller.network.outputs(controller.inputs(row)) for row in rows]
            chosen = {tuple(codec.choose(o)) for o in outputs}
            if len(chosen) > FEWEST and min(gap(codec, o) for o in outputs) > LEAST_GAP:
                break
        else:
            raise SystemExit(f"{kind}: no weights with choices that are clear enough")
        write_controller(FOLDER / kind, weights, manifest)
        decided[kind] = decisions(kind, rows)
    DECIDED.write_bytes(safetensors.numpy.save(kept | decided))


def decisions(kind: str, rows: list[Any]) -> np.ndarray:
    """Tier indices [50, D] of the controller in its folder, one episode."""
    controller = LearnedController.load(FOLDER / kind)
    controller.reset(Limits())
    chosen = [controller.network.action(controller.inputs(row)) for row in rows]
    return np.stack(chosen).astype(np.int64)


if __name__ == "__main__":
    main()
