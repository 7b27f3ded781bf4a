"""What a policy makes of its requests before it chooses by class: attention over rows, in NumPy.

Every request's row goes through the same layers. For each class and head a learned query weighs the
class's requests (softmax of their scores), and the head's share of what was encoded is averaged by
those weights: attention pooling (Lee et al. 2019, Set Transformer, without its other layers). So
neither the number of slots nor their order matters, and of a class of which nobody decodes the
summary is 0. With queries of 0 it is the mean over the class. Layers end in ReLUs,
since tanh of what every request shows would be felt in a decision.

The rows are `policies.request_features`', what follows is `policies.network`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.errors import UserError
from policies.network import Float32s
from policies.request_features import CLASS

QUERIES = "request.queries"


@dataclass(frozen=True)
class RequestShape:
    """Widths from a request's row over the encoder's layers, each behind a ReLU; heads by class."""

    layers: tuple[int, ...]
    heads: int = 1

    def __post_init__(self) -> None:
        if len(self.layers) < 2 or not all(type(n) is int and n > 0 for n in self.layers):
            raise UserError(
                f"requests: layers are {self.layers}; expected at least two positive whole numbers"
            )
        if type(self.heads) is not int or self.heads < 1 or self.layers[-1] % self.heads:
            raise UserError(
                f"requests: {self.heads!r} heads; expected a divisor of the last layer's width, "
                f"{self.layers[-1]}"
            )

    def outputs(self, classes: int) -> int:
        """Entries of the summary of so many classes: the last layer's width for each."""
        return classes * self.layers[-1]

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor: request.0.weight [out, in], …, request.queries."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (fan_in, fan_out) in enumerate(pairwise(self.layers)):
            shapes[f"request.{i}.weight"] = (fan_out, fan_in)
            shapes[f"request.{i}.bias"] = (fan_out,)
        shapes[QUERIES] = (self.heads, self.layers[-1])
        return shapes


class RequestEncoder:
    """From the rows of all slots to a summary of each class."""

    def __init__(self, shape: RequestShape, weights: Mapping[str, Float32s]) -> None:
        """`weights` hold those of `RequestShape.tensor_shapes`, already checked."""
        self._layers = [
            (weights[f"request.{i}.weight"].T, weights[f"request.{i}.bias"])
            for i in range(len(shape.layers) - 1)
        ]
        self._queries = weights[QUERIES].T
        self._parts = shape.heads, shape.layers[-1] // shape.heads

    def summary(self, rows: Float32s, mask: Float32s) -> Float32s:
        """Float32 [C * H], class by class, of rows [S, K] and mask [S] (1 where one decodes)."""
        x = rows[mask > 0]
        members = x[:, CLASS:, None] > 0  # [n, C, 1]
        for weight, bias in self._layers:
            x = np.maximum(x @ weight + bias, 0)
        scores = np.where(members, (x @ self._queries)[:, None], np.float32(-np.inf))
        highest = scores.max(axis=0, initial=np.float32(-1e30))
        weights = np.exp(scores - highest)  # [n, C, heads], 0 for those of other classes
        weights /= np.maximum(weights.sum(axis=0), 1.0)  # it is 0 where nobody is, else 1 or more
        by_head = x.reshape(len(x), *self._parts).transpose(1, 0, 2)  # [heads, n, H / heads]
        pooled = weights.transpose(2, 1, 0) @ by_head  # [heads, C, H / heads]
        return pooled.transpose(1, 0, 2).ravel()
