"""Price actions: tiers of the factors by which a learned policy steers slack-priced.

One factor a class and two for the engine, C + 2 choices in place of the 4 · C of whole plans; which
nodes are drafted and verified stays the optimizer's business (`policies.steered` says what a factor
does). All factors 1 are slack-priced itself, where an untrained policy begins.

NumPy only, since every exported controller imports this; who is steered needs Numba, as
slack-priced does, and is loaded when prices are to be carried out.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats, Ints
from policies.actions import (
    SHARES,
    Actor,
    PlanByClass,
    check_class_names,
    parts_of,
    tiers_of,
)

ENGINE_WIDE = ("reading", "running")
"""What is chosen once for all classes, behind the weights in an action."""


class Prices(NamedTuple):
    """Factors by which slack-priced is steered."""

    weight: Floats  # [C] on the worth of a class's tokens
    reading: float  # on the prompt tokens that are read before a step
    running: float  # share of the slots that may be held, above 0 and at most 1


@dataclass(frozen=True)
class PriceActions:
    """Tiers of each factor, rising; 1 is among all of them."""

    kind: ClassVar[str] = "prices"
    lossless: ClassVar[bool] = True
    class_names: tuple[str, ...]
    weights: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    """On the worth of a class's tokens."""
    reading: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    """On the prompt tokens that are read before a step."""
    running: tuple[float, ...] = SHARES
    """Share of the slots that may be held."""

    def __post_init__(self) -> None:
        check_class_names("price actions", self.class_names)
        for name in ("weights", *ENGINE_WIDE):
            tiers = getattr(self, name)
            numbers = all(type(t) in (int, float) and 0 < t < math.inf for t in tiers)
            if not numbers or list(tiers) != sorted(set(tiers)) or 1.0 not in tiers:
                raise UserError(
                    f"price actions: {name} are {tiers}; expected factors above 0, rising, 1.0 "
                    "among them"
                )
        if self.running[-1] != 1.0:
            raise UserError(
                f"price actions: running is {self.running}; expected shares of the slots, 1.0 last"
            )

    @property
    def nvec(self) -> Ints:
        """[C + 2] number of tiers of each entry of an action: by class, then as ENGINE_WIDE."""
        return np.array([len(tiers) for tiers in self._tiers], dtype=np.int64)

    @property
    def neutral(self) -> Ints:
        """[C + 2] the tiers of 1."""
        return np.array([tiers.index(1.0) for tiers in self._tiers], dtype=np.int64)

    @property
    def _tiers(self) -> tuple[tuple[float, ...], ...]:
        return (*(self.weights for _ in self.class_names), self.reading, self.running)

    def off(self) -> PlanByClass:
        """Ordinary decoding for every class."""
        classes = len(self.class_names)
        nothing, one = np.zeros(classes, np.int64), np.ones(classes, np.int64)
        return PlanByClass(nothing, one, nothing.copy(), np.ones(classes))

    def actor(self) -> Actor:
        """Slack-priced under the prices that were last decided (`policies.steered`)."""
        steered: type[Actor] = importlib.import_module("policies.steered").Steered
        return steered(self)  # type: ignore[call-arg]

    def decode(self, action: Ints) -> Prices:
        """From tier indices [C + 2] to factors. Raises UserError outside the table."""
        index = tiers_of(action, self.nvec, "one for each class, for reading and for running")
        chosen = zip(index.tolist(), self._tiers, strict=True)
        *weight, reading, running = (tiers[i] for i, tiers in chosen)
        return Prices(np.array(weight, dtype=np.float64), float(reading), float(running))

    def figures(self, action: Ints) -> dict[str, float]:
        """The factors, as `weight/CLASS`, `reading` and `running`."""
        weight, reading, running = self.decode(action)
        by_class = zip(self.class_names, weight.tolist(), strict=True)
        found = {f"weight/{name}": factor for name, factor in by_class}
        return {**found, "reading": reading, "running": running}

    def to_dict(self) -> dict[str, Any]:
        """The manifest's form: JSON types only."""
        return {
            "kind": self.kind,
            "class_names": list(self.class_names),
            "weights": list(self.weights),
            "reading": list(self.reading),
            "running": list(self.running),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PriceActions:
        """The table that `to_dict` described. Raises UserError for anything else."""
        keys = {"kind", "class_names", "weights", *ENGINE_WIDE}
        if set(values) != keys or values["kind"] != cls.kind:
            raise UserError(
                f"price actions: got {sorted(values)}; expected the keys {sorted(keys)}"
            )
        parts = {key: part for key, part in values.items() if key != "kind"}
        return cls(**parts_of("price actions", parts))
