"""A trained policy network as plain NumPy: a multi-layer perceptron and its input normaliser.

Float32 throughout, as in training, so that actions agree. It chooses the most likely tier of each
dimension; sampling belongs to training. Where the weights come from is `policies.learned`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Ints

Float32s = NDArray[np.float32]

ACTIVATIONS = ("tanh", "relu")


@dataclass(frozen=True)
class Normaliser:
    """clip((x - mean) / sqrt(var + epsilon), ±clip), as Stable-Baselines3's VecNormalize does."""

    mean: tuple[float, ...]
    var: tuple[float, ...]
    clip: float = 10.0
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        numbers = np.array([*self.mean, *self.var, self.clip, self.epsilon], dtype=np.float64)
        if len(self.mean) != len(self.var) or not np.isfinite(numbers).all():
            raise UserError(
                f"normaliser: {len(self.mean)} means and {len(self.var)} variances; "
                "expected equally many, all finite"
            )
        if min(self.var, default=0.0) < 0 or self.clip <= 0 or self.epsilon <= 0:
            raise UserError(
                "normaliser: expected variances of at least 0, and clip and epsilon above 0"
            )


@dataclass(frozen=True)
class NetworkShape:
    """Widths from the observation over the hidden layers to the logits; the hidden activation."""

    layers: tuple[int, ...]
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if len(self.layers) < 2 or not all(type(n) is int and n > 0 for n in self.layers):
            raise UserError(
                f"network: layers are {self.layers}; expected at least two positive whole numbers"
            )
        if self.activation not in ACTIVATIONS:
            raise UserError(
                f"network: activation is {self.activation!r}; expected one of "
                f"{', '.join(ACTIVATIONS)}"
            )

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor: policy.0.weight [out, in], …, action.bias [logits]."""
        last = len(self.layers) - 2
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (fan_in, fan_out) in enumerate(zip(self.layers[:-1], self.layers[1:], strict=True)):
            name = "action" if i == last else f"policy.{i}"
            shapes[f"{name}.weight"] = (fan_out, fan_in)
            shapes[f"{name}.bias"] = (fan_out,)
        return shapes


def check_tensors(shape: NetworkShape, weights: Mapping[str, NDArray[np.generic]]) -> None:
    """Raise UserError unless `weights` are exactly the finite float32 tensors of `shape`."""
    expected = shape.tensor_shapes()
    missing, extra = (
        sorted(expected.keys() - weights.keys()),
        sorted(weights.keys() - expected.keys()),
    )
    if missing or extra:
        what = f"tensor {missing[0]} is missing" if missing else f"tensor {extra[0]} is unknown"
        raise UserError(f"{what}; expected {', '.join(expected)}")
    for name, tensor in weights.items():
        if tensor.shape != expected[name] or tensor.dtype != np.float32:
            raise UserError(
                f"tensor {name} has shape {tensor.shape} and type {tensor.dtype}; "
                f"expected {expected[name]} and float32"
            )
        if not np.isfinite(tensor).all():
            raise UserError(f"tensor {name} holds values that are no finite numbers")


class Network:
    """Observation [F] to logits [sum(nvec)] to one index per action dimension."""

    def __init__(
        self,
        shape: NetworkShape,
        weights: Mapping[str, Float32s],
        nvec: Ints,
        normaliser: Normaliser | None = None,
    ) -> None:
        """`weights` named as in `NetworkShape.tensor_shapes`; raises UserError when they misfit."""
        check_tensors(shape, weights)
        if shape.layers[-1] != int(nvec.sum()):
            raise UserError(
                f"network: {shape.layers[-1]} logits; expected {int(nvec.sum())}, "
                "one for each tier of the action table"
            )
        if normaliser is not None and len(normaliser.mean) != shape.layers[0]:
            raise UserError(
                f"normaliser: {len(normaliser.mean)} entries; expected {shape.layers[0]}, "
                "one for each input of the network"
            )
        names = [name.removesuffix(".weight") for name in shape.tensor_shapes() if "weight" in name]
        self._layers = [(weights[f"{n}.weight"], weights[f"{n}.bias"]) for n in names]
        self._tanh = shape.activation == "tanh"
        self._normaliser = normaliser
        if normaliser is not None:
            # Float64 until the last step, as VecNormalize computes it.
            self._mean = np.array(normaliser.mean)
            self._scale = np.sqrt(np.array(normaliser.var) + normaliser.epsilon)
        # Logits are laid out one row a dimension, so that a single argmax serves all of them.
        self._rows = np.repeat(np.arange(len(nvec)), nvec)
        self._columns = np.concatenate([np.arange(n) for n in nvec])
        self._padded = (len(nvec), int(nvec.max()))

    def normalised(self, observation: Float32s) -> Float32s:
        """The network's input, float32 [F]."""
        if self._normaliser is None:
            return observation
        clip = self._normaliser.clip
        scaled = (observation - self._mean) / self._scale
        return np.clip(scaled, -clip, clip).astype(np.float32)

    def logits(self, observation: Float32s) -> Float32s:
        """Unnormalised log-probabilities of every tier, concatenated over dimensions."""
        x = self.normalised(observation)
        for weight, bias in self._layers[:-1]:
            x = weight @ x + bias
            x = np.tanh(x) if self._tanh else np.maximum(x, 0)
        weight, bias = self._layers[-1]
        return weight @ x + bias

    def action(self, observation: Float32s) -> Ints:
        """The most likely index of every dimension; the lowest of equals."""
        padded = np.full(self._padded, -np.inf, dtype=np.float32)
        padded[self._rows, self._columns] = self.logits(observation)
        return np.argmax(padded, axis=1)
