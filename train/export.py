"""From a trained Stable-Baselines3 policy to a controller folder that needs NumPy alone.

The folder's format is `policies.learned`'s and `policies.manifest`'s; here tensors are renamed,
actions compared on many observations, and the ten lines of card.md written.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Limits
from policies.action_mask import ActionMask
from policies.actions import Actions, ActionTable
from policies.features import bounds
from policies.learned import LearnedController, write_controller
from policies.manifest import Manifest
from policies.network import NetworkShape
from train.algorithms.base import Learner

CHECKED = 1000
SEQUENCE = 20
ACTIVATIONS: dict[type, str] = {torch.nn.Tanh: "tanh", torch.nn.ReLU: "relu"}
ONNX_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True)
class Agreement:
    """How an exported controller compares with the policy it came from."""

    observations: int
    differing_actions: int
    largest_difference: float
    """Of the networks' outputs."""

    @property
    def holds(self) -> bool:
        """Equal actions on every observation."""
        return self.differing_actions == 0


def network_of(model: Learner) -> tuple[NetworkShape, dict[str, NDArray[np.float32]]]:
    """Shape and float32 tensors of the acting half of a model; the critic stays behind."""
    acting = model.acting()
    weights: dict[str, NDArray[np.float32]] = {}
    inputs, width = acting.layers[0].in_features, 0
    if (lstm := acting.lstm) is not None:
        inputs, width = lstm.input_size, lstm.hidden_size
        tensors = {name: _array(tensor) for name, tensor in lstm.named_parameters()}
        weights["lstm.input"] = tensors["weight_ih_l0"]
        weights["lstm.state"] = tensors["weight_hh_l0"]
        weights["lstm.bias"] = tensors["bias_ih_l0"] + tensors["bias_hh_l0"]
    for index, layer in enumerate(acting.layers):
        name = "action" if index == len(acting.layers) - 1 else f"policy.{index}"
        weights[f"{name}.weight"] = _array(layer.weight)
        weights[f"{name}.bias"] = _array(layer.bias)
    widths = (inputs, *(int(layer.out_features) for layer in acting.layers))
    return NetworkShape(widths, ACTIVATIONS[acting.activation], width), weights


def export(
    model: Learner,
    folder: Path,
    hold: int,
    training: Mapping[str, Any],
    onnx: bool = False,
) -> LearnedController:
    """Write the controller folder, whole or not at all, and load it back as it will be shipped.

    `training` holds the figures of `train.session.training_figures`, for manifest and card.
    Raises UserError when the folder cannot be written, or for `onnx` without that package.
    """
    shape, weights = network_of(model)
    name = str(training["algorithm"])
    manifest = Manifest(
        name=name,
        network=shape,
        codec=model.codec,
        hold=hold,
        training=dict(training),
    )
    files = {"card.md": card(name, hold, training, model.codec.table).encode()}
    if onnx:
        files["policy.onnx"] = onnx_logits(shape, weights)
    write_controller(folder, weights, manifest, files)
    return LearnedController.load(folder)


def compare(
    model: Learner, controller: LearnedController, rng: np.random.Generator, count: int = CHECKED
) -> Agreement:
    """Deterministic choices of both on `count` random observations inside the features' bounds.

    Half of them have most features at a bound, where real ones often lie (an empty class). They are
    served as episodes of SEQUENCE decisions, since a recurrent policy remembers.
    """
    manifest, network = controller.manifest, controller.network
    low, high = bounds(manifest.features)
    observations = rng.uniform(low, high, (count, len(low))).astype(np.float32)
    at_bound = rng.random((count, len(low))) < 0.7
    at_bound[::2] = False
    edges = np.where(rng.random((count, len(low))) < 0.5, low, high).astype(np.float32)
    observations = np.where(at_bound, edges, observations)
    observations = observations.reshape(-1, count // SEQUENCE, len(low))

    table, mask = manifest.actions, None
    if manifest.masked and isinstance(table, ActionTable):
        mask = ActionMask(table, manifest.features, Limits())
    legal = None if mask is None else mask.legal(observations)
    theirs = [manifest.codec.decode(rows) for rows in model.greedy(observations, legal)]
    outputs, ours = [], []
    for episode in observations.swapaxes(0, 1):
        controller.reset(Limits())
        outputs.append([network.outputs(row) for row in episode])
        ours.append([network.choose(o, row) for o, row in zip(outputs[-1], episode, strict=True)])
    wrong = (np.array(ours).swapaxes(0, 1) != np.stack(theirs)).any(axis=-1)
    gap = np.abs(np.array(outputs).swapaxes(0, 1) - policy_outputs(model, observations)).max()
    return Agreement(count, int(wrong.sum()), float(gap))


def policy_outputs(model: Learner, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the trainer's own layers give, [T, R, outputs] of episodes [T, R, features]."""
    layers, activation, lstm = model.acting()
    with torch.no_grad():
        x = torch.as_tensor(observations, device=model.device)
        if lstm is not None:
            x, _ = lstm(x)
        for layer in layers[:-1]:
            x = activation()(layer(x))
        return _array(layers[-1](x))


def onnx_logits(shape: NetworkShape, weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The outputs as an ONNX graph: `observation` [n, features] to `logits` [n, outputs].

    Built node by node, since a chain of matrix products needs no tracing of a torch module. Raises
    UserError for a recurrent policy, and without the package.
    """
    if shape.lstm:
        raise UserError("--onnx: a recurrent policy is not written as ONNX; omit it")
    if importlib.util.find_spec("onnx") is None:
        raise UserError(
            "--onnx: the package onnx is not installed; pip install 'draftgym[onnx]' or omit it"
        )
    from onnx import TensorProto, checker, helper, numpy_helper

    names = [n.removesuffix(".weight") for n in shape.tensor_shapes() if n.endswith(".weight")]
    nodes, value = [], "observation"
    for name in names:
        last = name == names[-1]
        output = "logits" if last else f"{name}.sum"
        inputs = [value, f"{name}.weight", f"{name}.bias"]
        nodes.append(helper.make_node("Gemm", inputs, [output], transB=1))
        if not last:
            value = f"{name}.out"
            nodes.append(helper.make_node(ONNX_ACTIVATIONS[shape.activation], [output], [value]))

    def matrix(name: str, columns: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", columns])

    graph = helper.make_graph(
        nodes,
        "policy",
        [matrix("observation", shape.layers[0])],
        [matrix("logits", shape.layers[-1])],
        [numpy_helper.from_array(tensor, name) for name, tensor in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, producer_name="draftgym", opset_imports=[opset], ir_version=8)
    checker.check_model(model)
    return bytes(model.SerializeToString())


DECIDES = {
    "tiers": "depth, width and nodes by SLO class",
    "prices": "the prices by which slack-priced chooses trees (needs a hardware profile)",
}

NEEDS = {"tiers": "NumPy, safetensors", "prices": "NumPy, safetensors and Numba"}


def card(name: str, hold: int, training: Mapping[str, Any], actions: Actions) -> str:
    """Ten lines on what the controller is, how good it is and when not to trust it."""
    sizes_batch = isinstance(actions, ActionTable) and actions.sizes_batch
    decides, needs = DECIDES[actions.kind], NEEDS[actions.kind]
    if sizes_batch:
        decides += " and how many requests may run"
    lines = [
        f"# {name}",
        "",
        f"A speculation controller for DraftGym's engine, made {training['made']} by "
        f"{training['algorithm']}.",
        f"- Decides {decides}, every {hold} iterations; lossless.",
        f"- Trained on: {training['served']}.",
        f"- Training: {training['decisions']:,} decisions, {training['updates']} updates in "
        f"{training['seconds']:.0f} s, seed {training['seed']}, on {training['machine']}.",
        *_of_fine_tuning(training.get("fine_tuned")),
        f"- How good{' before that' if training.get('fine_tuned') else ''}: {training['verdict']}",
        f"- Read that with: {'; '.join(training['notes']) or 'nothing yet'}.",
        "- Do not trust it with other classes, models, loads or machines before comparing there: "
        "`python evaluate.py --policy PATH chain eagle3`.",
        f"- To run it: `policies.learned.LearnedController.load(PATH)`; needs {needs}.",
    ]
    return "\n".join(lines) + "\n"


def _of_fine_tuning(tuned: Mapping[str, Any] | None) -> list[str]:
    """A line about what was learned on live after training on replay; none where nothing was."""
    if not tuned:
        return []
    verdict = tuned.get("verdict", "Not compared with what it was before.")
    return [
        f"- Fine-tuned live: {tuned['decisions']:,} decisions, {tuned['updates']} updates on "
        f"{tuned['served']}. {verdict}"
    ]


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().numpy().astype(np.float32)
