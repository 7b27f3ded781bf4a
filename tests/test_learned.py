"""Exported controllers: equal to the trained network, refused when anything was changed."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from engine.errors import UserError
from engine.protocol import Limits
from policies import manifest as manifest_format
from policies import registry
from policies.action_codec import BoxCodec, TierCodec, presets_of
from policies.actions import ActionTable
from policies.features import feature_table, observe
from policies.learned import LearnedController, write_controller
from policies.manifest import Manifest
from policies.network import Network, NetworkShape, Normaliser
from tests.test_features import make_view

ROOT = Path(__file__).resolve().parents[1]
CLASSES = ("coding", "chat", "summarization")
TABLE = ActionTable(CLASSES, margins=(1.0, 0.8))
F, A = len(feature_table(CLASSES)), int(TABLE.nvec.sum())
Weights = dict[str, np.ndarray]


def controller_parts(seed: int = 0, activation: str = "tanh") -> tuple[Weights, Manifest]:
    """Random weights of a small policy and their manifest."""
    rng = np.random.default_rng(seed)
    shape = NetworkShape((F, 32, 24, A), activation)
    weights = {
        name: rng.normal(0, 0.2, size).astype(np.float32)
        for name, size in shape.tensor_shapes().items()
    }
    mean, var = rng.uniform(-0.5, 0.5, F), rng.uniform(0, 0.3, F)
    normaliser = Normaliser(tuple(mean.tolist()), tuple(var.tolist()), clip=5.0)
    return weights, Manifest(
        "ppo",
        shape,
        TierCodec(TABLE),
        normaliser,
        hold=3,
        training={"steps": 1024, "attainment": 0.9},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A freshly exported controller."""
    write_controller(tmp_path / "controller", *controller_parts(), {"card.md": b"# card"})
    return tmp_path / "controller"


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_actions_equal_torch(activation: str) -> None:
    import torch

    weights, manifest = controller_parts(1, activation)
    assert manifest.normaliser is not None
    act = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[activation]
    model = torch.nn.Sequential(
        torch.nn.Linear(F, 32), act(), torch.nn.Linear(32, 24), act(), torch.nn.Linear(24, A)
    )
    names = ["policy.0", "policy.1", "action"]
    layers = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    for layer, name in zip(layers, names, strict=True):
        layer.weight.data = torch.from_numpy(weights[f"{name}.weight"])
        layer.bias.data = torch.from_numpy(weights[f"{name}.bias"])
    network = Network(manifest.network, weights, TierCodec(TABLE), manifest.normaliser)
    rng = np.random.default_rng(2)
    batch = rng.uniform(-1, 1, (1000, F)).astype(np.float32)
    mean, var = np.array(manifest.normaliser.mean), np.array(manifest.normaliser.var)
    scaled = np.clip((batch - mean) / np.sqrt(var + 1e-8), -5, 5).astype(np.float32)
    with torch.no_grad():
        logits = model(torch.from_numpy(scaled))
    ours = np.stack([network.outputs(x) for x in batch])
    np.testing.assert_allclose(ours, logits.numpy(), rtol=1e-5, atol=1e-5)
    expected = [part.argmax(1).numpy() for part in logits.split(TABLE.nvec.tolist(), dim=1)]
    assert (np.stack([network.action(x) for x in batch]) == np.stack(expected, 1)).all()


def test_an_lstm_equals_torchs_and_begins_anew() -> None:
    import torch

    codec = TierCodec(TABLE)
    shape = NetworkShape((F, 12, A), lstm=7)
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0, 0.4, size).astype(np.float32)
        for name, size in shape.tensor_shapes().items()
    }
    assert shape.tensor_shapes()["policy.0.weight"] == (12, 7)
    lstm = torch.nn.LSTM(F, 7)
    for ours, theirs in (
        ("input", "weight_ih_l0"),
        ("state", "weight_hh_l0"),
        ("bias", "bias_ih_l0"),
    ):
        getattr(lstm, theirs).data = torch.from_numpy(weights[f"lstm.{ours}"])
    torch.nn.init.zeros_(lstm.get_parameter("bias_hh_l0"))
    rows = rng.normal(0, 2, (30, F)).astype(np.float32)
    with torch.no_grad():
        hidden, _ = lstm(torch.from_numpy(rows)[:, None])
    network = Network(shape, weights, codec)
    for _ in range(2):
        for row, state in zip(rows, hidden[:, 0].numpy(), strict=True):
            x = np.tanh(weights["policy.0.weight"] @ state + weights["policy.0.bias"])
            expected = weights["action.weight"] @ x + weights["action.bias"]
            np.testing.assert_allclose(network.outputs(row), expected, rtol=1e-4, atol=1e-5)
        network.reset()


@pytest.mark.parametrize(
    "codec", [TierCodec(TABLE, masked=True), presets_of(TABLE, [CLASSES]), BoxCodec(TABLE)]
)
def test_other_codecs_are_written_and_read(codec: Any, tmp_path: Path) -> None:
    shape = NetworkShape((F, 8, codec.outputs), "relu", lstm=5)
    rng = np.random.default_rng(1)
    weights = {
        name: rng.normal(0, 0.2, size).astype(np.float32)
        for name, size in shape.tensor_shapes().items()
    }
    write_controller(tmp_path / "c", weights, Manifest("x", shape, codec))
    loaded = LearnedController.load(tmp_path / "c")
    assert loaded.manifest.codec == codec and loaded.manifest.network == shape
    assert (loaded.network.mask is not None) is loaded.manifest.masked
    view = make_view(rng)
    loaded.reset(Limits())
    first = loaded.plan(view)
    loaded.reset(Limits())
    for got, expected in zip(loaded.plan(view), first, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_folder_round_trip(folder: Path) -> None:
    assert {p.name for p in folder.iterdir()} == {"manifest.json", "weights.safetensors", "card.md"}
    assert [p.name for p in folder.parent.iterdir()] == ["controller"], "a temporary folder stayed"
    loaded = registry.make(str(folder))
    assert isinstance(loaded, LearnedController)
    weights, manifest = controller_parts()
    assert replace(loaded.manifest, files={}) == manifest
    assert loaded.name == "ppo" and not loaded.lossless
    view = make_view(np.random.default_rng(3))
    network = Network(manifest.network, weights, TierCodec(TABLE), manifest.normaliser)
    decision = TABLE.decode(network.action(observe(view, TABLE.off())))
    for got, expected in zip(loaded.plan(view), TABLE.expand(decision, view), strict=True):
        np.testing.assert_array_equal(got, expected)
    # A run folder stands for the controller in it.
    assert isinstance(registry.make(str(folder.parent)), LearnedController)


def test_a_decision_is_held_and_seen_by_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    memories: list[Any] = []

    def spy(view: Any, previous: Any, shifts: Any) -> Any:
        seen.append(previous)
        memories.append(shifts)
        return observe(view, previous, shifts)

    monkeypatch.setattr("policies.learned.observe", spy)
    controller = LearnedController.load(folder)
    controller.reset(Limits())
    rng = np.random.default_rng(4)
    view = make_view(rng)
    view = view._replace(active=np.ones_like(view.active))
    first = controller.plan(view)
    controller.plan(make_view(rng))
    controller.plan(make_view(rng))
    assert len(seen) == 1, "held for three iterations"
    controller.plan(make_view(rng))
    assert len(seen) == 2
    for c in range(len(CLASSES)):
        assert (first.depth[view.slo_class == c] == seen[1].depth[c]).all()
    controller.reset(Limits())
    controller.plan(view)
    assert len(seen) == 3 and (seen[2].depth == TABLE.off().depth).all()
    assert memories[0] is memories[1] is not memories[2]  # of one episode


def test_other_classes_are_refused(folder: Path) -> None:
    view = make_view(np.random.default_rng(5), class_names=("chat", "coding", "summarization"))
    with pytest.raises(UserError, match="trained for the classes coding, chat, summarization"):
        LearnedController.load(folder).plan(view)


def rewrite(folder: Path, change: Callable[[dict], None], sign: bool = True) -> None:
    """Change the manifest's values; `sign` renews the digest, as a careful forger would."""
    path = folder / "manifest.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    if sign:
        del values["digest"]
        values["digest"] = manifest_format._digest(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def put(path: str, value: Any) -> Callable[[dict], None]:
    """Set the entry at a dotted path."""

    def change(values: dict) -> None:
        *outer, last = path.split(".")
        for key in outer:
            values = values[key]
        values[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("format_version", 1), "format version 1"),
        (put("format_version", None), "format version None"),
        (put("host", "sglang"), "made for host 'sglang'"),
        (put("surprise", 1), "surprise is unknown"),
        (lambda v: v.pop("hold"), "hold is missing"),
        (put("hold", 0), "hold is 0"),
        (put("feature_hash", "00"), "other features"),
        (lambda v: v["features"][0].update(unit="ms"), "other features"),
        (lambda v: v["features"].reverse(), "other features"),
        (put("actions.depths", [1, 2]), "expected 0 among them"),
        (put("actions.depths", [0, 1]), "outputs"),
        (put("codec", {"kind": "trees"}), "expected one of tiers, presets, box"),
        (put("codec", {"kind": "box"}), "outputs; expected 12 for actions of kind box"),
        (put("codec.masked", 1), "no truth value"),
        (put("network.lstm", -1), "expected a width"),
        (put("network.lstm", 4), "tensor lstm.bias is missing"),
        (put("actions.class_names", ["a", "b", "c"]), "other features"),
        (put("network.layers", [F, 32, 25, A]), "shape"),
        (put("network.layers", [F - 1, 32, 24, A]), "one for each feature"),
        (put("network.layers", "x"), "no list of numbers"),
        (put("network.activation", "gelu"), "activation"),
        (put("network.extra", 1), "extra is unknown"),
        (put("normaliser.mean", [0.0]), "equally many"),
        (put("normaliser.clip", "x"), "no numbers"),
        (put("training", []), "expected a table"),
        (put("files", {}), "no hash of weights.safetensors"),
        (put("files", {"../../etc/passwd": "00"}), "no file name"),
    ],
)
def test_changed_manifests_are_refused(
    folder: Path, change: Callable[[dict], None], says: str
) -> None:
    rewrite(folder, change)
    with pytest.raises(UserError, match=says) as caught:
        LearnedController.load(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_a_manifest_edited_by_hand_is_refused(folder: Path) -> None:
    rewrite(folder, put("actions.depths", [0, 1, 2, 3, 4, 7]), sign=False)
    with pytest.raises(UserError, match="digest"):
        LearnedController.load(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "card.md"])
def test_changed_files_are_refused(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} does not match its SHA-256"):
        LearnedController.load(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w.pop("action.bias"), "action.bias is missing"),
        (lambda w: w.update(extra=w["action.bias"]), "extra is unknown"),
        (lambda w: w.update({"policy.0.bias": np.zeros(3, np.float32)}), "shape"),
        (lambda w: w.update({"policy.0.bias": np.zeros(32)}), "float64"),
        (lambda w: w["action.bias"].fill(np.nan), "no finite numbers"),
    ],
)
def test_changed_tensors_are_refused(
    folder: Path, change: Callable[[Weights], None], says: str
) -> None:
    weights, manifest = controller_parts()
    change(weights)
    with pytest.raises(UserError, match=says):
        write_controller(folder.parent / "new", weights, manifest)
    assert not (folder.parent / "new").exists()
    content = safetensors.numpy.save(weights)
    (folder / "weights.safetensors").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    rewrite(folder, lambda v: v["files"].update({"weights.safetensors": digest}))
    with pytest.raises(UserError, match=says):
        LearnedController.load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}"])
def test_damaged_manifests_are_refused(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(UserError) as caught:
        LearnedController.load(folder)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tensors_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"not tensors")
    digest = hashlib.sha256(b"not tensors").hexdigest()
    rewrite(folder, lambda v: v["files"].update({"weights.safetensors": digest}))
    with pytest.raises(UserError, match="no readable controller"):
        LearnedController.load(folder)
    with pytest.raises(UserError, match="no readable controller"):
        LearnedController.load(tmp_path / "nowhere")


def test_writing_replaces_controllers_only(folder: Path, tmp_path: Path) -> None:
    weights, manifest = controller_parts(7)
    write_controller(folder, weights, manifest)
    assert not (folder / "card.md").exists() and LearnedController.load(folder)
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1.txt").write_text("words", encoding="utf-8")
    with pytest.raises(UserError, match="holds something else"):
        write_controller(other, weights, manifest)
    assert (other / "chapter1.txt").exists()


def test_full_disk_leaves_the_old_controller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    before = (folder / "weights.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("policies.learned.os.fsync", full)
        with pytest.raises(UserError, match="No space left on device"):
            write_controller(folder, *controller_parts(8))
    assert [p.name for p in folder.parent.iterdir()] == ["controller"]
    assert (folder / "weights.safetensors").read_bytes() == before


def test_figures_that_are_no_json_are_refused(tmp_path: Path) -> None:
    weights, manifest = controller_parts()
    with pytest.raises(UserError, match="finite"):
        write_controller(tmp_path / "c", weights, replace(manifest, training={"x": float("nan")}))
    assert not any(tmp_path.iterdir())


def test_runs_without_torch_gymnasium_and_sb3(folder: Path) -> None:
    code = (
        "import sys\n"
        "from policies.learned import LearnedController\n"
        f"LearnedController.load({str(folder)!r})\n"
        "names = {'torch', 'gymnasium', 'stable_baselines3', 'numba', 'transformers'}\n"
        "assert not names & set(sys.modules), names & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
