"""A trained policy network as plain NumPy: normaliser, perhaps an LSTM, a multi-layer perceptron.

Float32 throughout, as in training, so that actions agree. It chooses greedily; sampling belongs to
training. What its outputs stand for is `policies.action_codec`'s to say, where the weights come
from `policies.learned`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Ints
from policies.action_codec import ActionCodec
from policies.action_mask import ActionMask

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
    """Widths from the observation over the hidden layers to the outputs; the hidden activation."""

    layers: tuple[int, ...]
    activation: str = "tanh"
    lstm: int = 0
    """Width of an LSTM between the observation and the first layer; 0: there is none."""

    def __post_init__(self) -> None:
        if type(self.lstm) is not int or self.lstm < 0:
            raise UserError(f"network: lstm is {self.lstm!r}; expected a width, 0 for none")
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
        """Name and shape of every tensor: policy.0.weight [out, in], …, action.bias [outputs].

        An LSTM's gates stand in PyTorch's order: input, forget, cell, output.
        """
        last = len(self.layers) - 2
        shapes: dict[str, tuple[int, ...]] = {}
        widths = self.layers[:-1]
        if self.lstm:
            shapes["lstm.input"] = (4 * self.lstm, self.layers[0])
            shapes["lstm.state"] = (4 * self.lstm, self.lstm)
            shapes["lstm.bias"] = (4 * self.lstm,)
            widths = (self.lstm, *widths[1:])
        for i, (fan_in, fan_out) in enumerate(zip(widths, self.layers[1:], strict=True)):
            name = "action" if i == last else f"policy.{i}"
            shapes[f"{name}.weight"] = (fan_out, fan_in)
            shapes[f"{name}.bias"] = (fan_out,)
        return shapes


def check_tensors(
    expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, NDArray[np.generic]]
) -> None:
    """Raise UserError unless `weights` are exactly the finite float32 tensors that are expected."""
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
    """Observation [F] to outputs to tier indices [D]; an LSTM's state lives here."""

    def __init__(
        self,
        shape: NetworkShape,
        weights: Mapping[str, Float32s],
        codec: ActionCodec,
        normaliser: Normaliser | None = None,
    ) -> None:
        """`weights` named as in `NetworkShape.tensor_shapes`; raises UserError when they misfit."""
        check_tensors(shape.tensor_shapes(), weights)
        if shape.layers[-1] != codec.outputs:
            raise UserError(
                f"network: {shape.layers[-1]} outputs; expected {codec.outputs} for actions of "
                f"kind {codec.kind}"
            )
        if normaliser is not None and len(normaliser.mean) != shape.layers[0]:
            raise UserError(
                f"normaliser: {len(normaliser.mean)} entries; expected {shape.layers[0]}, "
                "one for each input of the network"
            )
        names = [name.removesuffix(".weight") for name in shape.tensor_shapes() if "weight" in name]
        self._layers = [(weights[f"{n}.weight"], weights[f"{n}.bias"]) for n in names]
        self._lstm = _Lstm(weights) if shape.lstm else None
        self._tanh = shape.activation == "tanh"
        self._codec = codec
        self.mask: ActionMask | None = None
        """Rules out tiers before the choice, where one is set."""
        self._normaliser = normaliser
        if normaliser is not None:
            # Float64 until the last step, as VecNormalize computes it.
            self._mean = np.array(normaliser.mean)
            self._scale = np.sqrt(np.array(normaliser.var) + normaliser.epsilon)

    def reset(self) -> None:
        """Forget what was seen: an episode begins."""
        if self._lstm is not None:
            self._lstm.reset()

    def normalised(self, observation: Float32s) -> Float32s:
        """The network's input, float32 [F]."""
        if self._normaliser is None:
            return observation
        clip = self._normaliser.clip
        scaled = (observation - self._mean) / self._scale
        return np.clip(scaled, -clip, clip).astype(np.float32)

    def outputs(self, observation: Float32s) -> Float32s:
        """What the codec chooses by: logits, values or inverse tanh. An LSTM moves on by a step."""
        x = self.normalised(observation)
        if self._lstm is not None:
            x = self._lstm.step(x)
        for weight, bias in self._layers[:-1]:
            x = weight @ x + bias
            x = np.tanh(x) if self._tanh else np.maximum(x, 0)
        weight, bias = self._layers[-1]
        return weight @ x + bias

    def choose(self, outputs: Float32s, observation: Float32s) -> Ints:
        """The greedy choice among `outputs`, under the mask where there is one; of equals the
        lowest."""
        if self.mask is not None:
            outputs = np.where(self.mask.legal(observation), outputs, np.float32(-np.inf))
        return self._codec.choose(outputs)

    def action(self, observation: Float32s) -> Ints:
        """Tier indices [D]."""
        return self.choose(self.outputs(observation), observation)


class _Lstm:
    """One layer, and what it remembers."""

    def __init__(self, weights: Mapping[str, Float32s]) -> None:
        self._input, self._state = weights["lstm.input"], weights["lstm.state"]
        self._bias = weights["lstm.bias"]
        self.reset()

    def reset(self) -> None:
        """Remember nothing."""
        width = self._state.shape[1]
        self._hidden, self._cell = np.zeros(width, np.float32), np.zeros(width, np.float32)

    def step(self, x: Float32s) -> Float32s:
        """The hidden state [H] after the input x [F]."""
        gates = self._input @ x + self._state @ self._hidden + self._bias
        enter, forget, cell, leave = np.split(gates, 4)
        self._cell = _sigmoid(forget) * self._cell + _sigmoid(enter) * np.tanh(cell)
        self._hidden = _sigmoid(leave) * np.tanh(self._cell)
        return self._hidden


def _sigmoid(x: Float32s) -> Float32s:
    """By the hyperbolic tangent, which never overflows."""
    half = np.float32(0.5)
    return half * (np.tanh(half * x) + np.float32(1.0))
