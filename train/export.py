"""From a trained Stable-Baselines3 policy to a controller folder that needs NumPy alone.

The folder's format is `policies.learned`'s and `policies.manifest`'s; here tensors are renamed
and the ten lines of card.md written. Whether both act alike is `train.agreement`'s to say.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.errors import UserError
from policies.actions import ActionTable
from policies.learned import LearnedController, write_controller
from policies.manifest import AGGREGATE, PATHS, Manifest
from policies.network import NetworkShape
from policies.request_encoder import QUERIES, RequestShape
from train.algorithms.base import Learner, linear

ACTIVATIONS: dict[type, str] = {torch.nn.Tanh: "tanh", torch.nn.ReLU: "relu"}
ONNX_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


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


def encoder_of(model: Learner) -> tuple[RequestShape | None, dict[str, NDArray[np.float32]]]:
    """Shape and tensors of what looks at requests one by one; None where nothing does."""
    encoder = model.acting().encoder
    if encoder is None:
        return None, {}
    weights = {QUERIES: _array(encoder.queries)}
    for index, layer in enumerate(linear(encoder.layers)):
        weights[f"request.{index}.weight"] = _array(layer.weight)
        weights[f"request.{index}.bias"] = _array(layer.bias)
    return encoder.shape, weights


def export(
    model: Learner,
    folder: Path,
    hold: int,
    training: Mapping[str, Any],
    onnx: bool = False,
    observation: str = AGGREGATE,
) -> LearnedController:
    """Write the controller folder, whole or not at all, and load it back as it will be shipped.

    `observation` is what the model was given, by its name; `training` holds the figures of
    `train.session.training_figures`, for manifest and card. Raises UserError when the folder cannot
    be written, or for `onnx` without that package.
    """
    shape, weights = network_of(model)
    requests, of_requests = encoder_of(model)
    name = str(training["algorithm"])
    manifest = Manifest(
        name=name,
        network=shape,
        codec=model.codec,
        requests=requests,
        hold=hold,
        training=dict(training),
        observation=observation,
    )
    files = {"card.md": card(manifest).encode()}
    if onnx and requests is not None:
        raise UserError("--onnx: a policy that observes requests is not written as ONNX; omit it")
    if onnx:
        files["policy.onnx"] = onnx_logits(shape, weights)
    write_controller(folder, weights | of_requests, manifest, files)
    return LearnedController.load(folder)


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


def card(manifest: Manifest) -> str:
    """Ten lines on what the controller is, how good it is and when not to trust it."""
    actions, training = manifest.actions, manifest.training
    sizes_batch = isinstance(actions, ActionTable) and actions.sizes_batch
    decides, needs = DECIDES[actions.kind], NEEDS[actions.kind]
    if manifest.observation == PATHS:
        decides = "depth, width and nodes of one request at a time, by the paths drafted last"
    if sizes_batch:
        decides += " and how many requests may run"
    if manifest.requests is not None:
        decides += ", looking at every request"
    lines = [
        f"# {manifest.name}",
        "",
        f"A speculation controller for DraftGym's engine, made {training['made']} by "
        f"{training['algorithm']}.",
        f"- Decides {decides}, every {manifest.hold} iterations; lossless.",
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
