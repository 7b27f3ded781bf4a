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
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy

from engine.errors import UserError
from policies.actions import ActionTable
from policies.features import bounds, feature_table
from policies.learned import LearnedController, write_controller
from policies.manifest import Manifest
from policies.network import NetworkShape

CHECKED = 1000
ACTIVATIONS = {torch.nn.Tanh: "tanh", torch.nn.ReLU: "relu"}
ONNX_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True)
class Agreement:
    """How an exported controller compares with the policy it came from."""

    observations: int
    differing_actions: int
    largest_logit_difference: float

    @property
    def holds(self) -> bool:
        """Equal actions on every observation."""
        return self.differing_actions == 0


def network_of(model: PPO) -> tuple[NetworkShape, dict[str, NDArray[np.float32]]]:
    """Shape and float32 tensors of the acting half of an MlpPolicy; the critic stays behind."""
    policy = _actor_critic(model)
    hidden = [m for m in policy.mlp_extractor.policy_net if isinstance(m, torch.nn.Linear)]
    action_net = policy.action_net
    if not isinstance(action_net, torch.nn.Linear):
        raise TypeError(f"{type(action_net).__name__} as the action layer; expected Linear")
    layers = [*hidden, action_net]
    weights: dict[str, NDArray[np.float32]] = {}
    for index, layer in enumerate(layers):
        name = "action" if index == len(layers) - 1 else f"policy.{index}"
        weights[f"{name}.weight"] = _array(layer.weight)
        weights[f"{name}.bias"] = _array(layer.bias)
    widths = (layers[0].in_features, *(layer.out_features for layer in layers))
    return NetworkShape(tuple(int(w) for w in widths), ACTIVATIONS[policy.activation_fn]), weights


def export(
    model: PPO,
    folder: Path,
    actions: ActionTable,
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
        name=name, network=shape, actions=actions, hold=hold, training=dict(training)
    )
    files = {"card.md": card(name, hold, training).encode()}
    if onnx:
        files["policy.onnx"] = onnx_logits(shape, weights)
    write_controller(folder, weights, manifest, files)
    return LearnedController.load(folder)


def compare(
    model: PPO, controller: LearnedController, rng: np.random.Generator, count: int = CHECKED
) -> Agreement:
    """Deterministic actions of both on `count` random observations inside the features' bounds.

    Half of them have most features at a bound, where real ones often lie (an empty class).
    """
    low, high = bounds(feature_table(controller.manifest.class_names))
    observations = rng.uniform(low, high, (count, len(low))).astype(np.float32)
    at_bound = rng.random((count, len(low))) < 0.7
    at_bound[::2] = False
    edges = np.where(rng.random((count, len(low))) < 0.5, low, high).astype(np.float32)
    observations = np.where(at_bound, edges, observations)
    theirs, _ = model.predict(observations, deterministic=True)
    ours = np.stack([controller.network.action(row) for row in observations])
    logits = np.stack([controller.network.logits(row) for row in observations])
    gap = np.abs(logits - policy_logits(model, observations)).max()
    return Agreement(count, int((ours != theirs).any(axis=1).sum()), float(gap))


def policy_logits(model: PPO, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """The trainer's own logits, [n, sum(nvec)]."""
    policy = _actor_critic(model)
    with torch.no_grad():
        inputs = torch.as_tensor(observations, device=policy.device)
        return _array(policy.action_net(policy.mlp_extractor.policy_net(inputs)))


def onnx_logits(shape: NetworkShape, weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The logits as an ONNX graph: `observation` [n, features] to `logits` [n, sum(nvec)].

    Built node by node, since a chain of matrix products needs no tracing of a torch module.
    """
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


def card(name: str, hold: int, training: Mapping[str, Any]) -> str:
    """Ten lines on what the controller is, how good it is and when not to trust it."""
    lines = [
        f"# {name}",
        "",
        f"A speculation controller for DraftGym's engine, made {training['made']}.",
        f"- Decides depth, width and nodes by SLO class, every {hold} iterations; lossless.",
        f"- Trained on: {training['served']}.",
        f"- Training: {training['decisions']:,} decisions, {training['updates']} updates in "
        f"{training['seconds']:.0f} s, seed {training['seed']}, on {training['machine']}.",
        f"- How good: {training['verdict']}",
        f"- Read that with: {'; '.join(training['notes']) or 'nothing yet'}.",
        "- Do not trust it with other classes, models, loads or machines before comparing there: "
        "`python evaluate.py --policy PATH chain eagle3`.",
        "- To run it: `policies.learned.LearnedController.load(PATH)`; needs NumPy, safetensors.",
    ]
    return "\n".join(lines) + "\n"


def _actor_critic(model: PPO) -> ActorCriticPolicy:
    policy = model.policy
    if not isinstance(policy, ActorCriticPolicy):
        raise TypeError(f"{type(policy).__name__} is no actor-critic policy")
    return policy


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().numpy().astype(np.float32)
