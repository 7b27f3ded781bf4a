"""Writes tests/golden: an exported controller for each kind, and what it decides.

`python -m tests.golden_controllers` does so after the format or the features have changed on
purpose. Observations are whole sixteenths within the features' bounds, kept as one byte each.
Weights are such that no two outputs that compete for a choice are nearly equal: another processor
adds in another order, and must still choose the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.numpy

from policies.action_codec import ActionCodec, BoxCodec, TierCodec, presets_of
from policies.actions import ActionTable
from policies.features import bounds, feature_table
from policies.learned import write_controller
from policies.manifest import Manifest
from policies.network import Network, NetworkShape
from policies.price_actions import PriceActions
from tests.tiny_recording import CLASSES

FOLDER = Path(__file__).resolve().parent / "golden"
DECIDED = FOLDER / "decisions.safetensors"
OBSERVATIONS, STEPS = 50, 16
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


def observations() -> np.ndarray:
    """[50, F] the fixed ones, as the file has them."""
    kept = safetensors.numpy.load_file(DECIDED)["observations"]
    return kept.astype(np.float32) / STEPS


def drawn_observations() -> np.ndarray:
    """[50, F] in sixteenths, one byte each."""
    low, high = (np.rint(STEPS * bound).astype(int) for bound in bounds(feature_table(CLASSES)))
    rng = np.random.default_rng(0)
    return rng.integers(low, high, (OBSERVATIONS, len(low)), endpoint=True).astype(np.int8)


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
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.normal(0.0, 2.0 / np.sqrt(size[-1]), size).astype(np.float32)
        for name, size in shape.tensor_shapes().items()
    }
    told = {"algorithm": kind, "updates": 1, "made": "by tests/golden_controllers.py"}
    return weights, Manifest(kind, shape, codec, hold=2, training=told)


def main() -> None:
    """Write all of it."""
    bytes_ = drawn_observations()
    rows = bytes_.astype(np.float32) / STEPS
    decided: dict[str, np.ndarray] = {"observations": bytes_}
    for kind, (codec, shape) in KINDS.items():
        for seed in range(1000):
            weights, manifest = random_controller(kind, seed)
            network = Network(shape, weights, codec)
            outputs = [network.outputs(row) for row in rows]
            chosen = {tuple(codec.choose(o)) for o in outputs}
            if len(chosen) > FEWEST and min(gap(codec, o) for o in outputs) > LEAST_GAP:
                break
        else:
            raise SystemExit(f"{kind}: no weights with choices that are clear enough")
        write_controller(FOLDER / kind, weights, manifest)
        decided[kind] = decisions(kind, rows)
    DECIDED.write_bytes(safetensors.numpy.save(decided))


def decisions(kind: str, rows: np.ndarray) -> np.ndarray:
    """Tier indices [50, D] of the controller in its folder, one episode."""
    from engine.protocol import Limits
    from policies.learned import LearnedController

    controller = LearnedController.load(FOLDER / kind)
    controller.reset(Limits())
    return np.stack([controller.network.action(row) for row in rows]).astype(np.int64)


if __name__ == "__main__":
    main()
