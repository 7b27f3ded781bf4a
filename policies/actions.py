"""The action table: which depths, widths, node caps and margins a learned controller may choose.

One choice of each per SLO class, as indices into tiers: the environment's MultiDiscrete and the
exported controller's network share this table. What a plan costs or earns is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats, Ints, Plan, View


class PlanByClass(NamedTuple):
    """A plan with one entry a class; every request of the class is given it."""

    depth: Ints  # [C] draft steps, 0 is ordinary decoding
    width: Ints  # [C] beam width
    nodes: Ints  # [C] nodes kept, the root not counted
    margin: Floats  # [C] acceptance margin, 1 is lossless


DIMENSIONS = ("depth", "width", "nodes", "margin")
"""What is chosen for each class, in the order of the action vector."""


@dataclass(frozen=True)
class ActionTable:
    """Tiers of each dimension; index 0 of every dimension together is "speculation off".

    The margin (the acceptance threshold) is a dimension from the start so that an action keeps
    its shape, but by default with the lossless tier alone: a reward of tokens in time knows
    nothing of the text's quality, so whoever wants to trade it says so with
    `margins=(1.0, 0.8, 0.6)`. An entry of 1 in `nvec` is a legal MultiDiscrete.
    """

    class_names: tuple[str, ...]
    depths: tuple[int, ...] = (0, 1, 2, 3, 4, 6)
    widths: tuple[int, ...] = (1, 2, 4, 8)
    nodes: tuple[int, ...] = (2, 4, 8, 16, 32)
    margins: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.class_names or len(set(self.class_names)) != len(self.class_names):
            raise UserError(
                f"action table: class names are {self.class_names}; expected at least one, "
                "each once"
            )
        for name, tiers, least in (
            ("depths", self.depths, 0),
            ("widths", self.widths, 1),
            ("nodes", self.nodes, 1),
        ):
            whole = all(type(tier) is int and tier >= least for tier in tiers)
            if not (tiers and whole and list(tiers) == sorted(set(tiers))):
                raise UserError(
                    f"action table: {name} are {tiers}; expected whole numbers of at least "
                    f"{least}, rising"
                )
        if self.depths[0] != 0:
            raise UserError(
                f"action table: depths are {self.depths}; expected 0 among them, "
                "so that speculation can be switched off"
            )
        legal = all(isinstance(m, int | float) and 0 < m <= 1 for m in self.margins)
        falling = legal and list(self.margins) == sorted(set(self.margins), reverse=True)
        if not (falling and self.margins and self.margins[0] == 1):
            raise UserError(
                f"action table: margins are {self.margins}; expected 1.0 (lossless) first, "
                "then falling, all above 0"
            )

    @property
    def lossless(self) -> bool:
        """True when no choice changes the emitted text."""
        return len(self.margins) == 1

    @property
    def nvec(self) -> Ints:
        """[C · 4] number of tiers of each entry of an action: class by class, as DIMENSIONS."""
        return np.array(
            [len(self.depths), len(self.widths), len(self.nodes), len(self.margins)]
            * len(self.class_names),
            dtype=np.int64,
        )

    def off(self) -> PlanByClass:
        """Ordinary decoding for every class: the plan before the first decision."""
        return self.decode(np.zeros(len(self.nvec), dtype=np.int64))

    def decode(self, action: Ints) -> PlanByClass:
        """From tier indices [C · 4] to a plan by class. Raises UserError outside the table."""
        index = np.asarray(action)
        if index.shape != (len(self.nvec),) or not np.issubdtype(index.dtype, np.integer):
            raise UserError(
                f"action of shape {index.shape} and type {index.dtype}; expected "
                f"{len(self.nvec)} whole numbers, {len(DIMENSIONS)} for each class"
            )
        if (index < 0).any() or (index >= self.nvec).any():
            raise UserError(
                f"action {index.tolist()} is outside the table; expected entries from 0 to below "
                f"{self.nvec.tolist()}"
            )
        depth, width, nodes, margin = index.reshape(-1, len(DIMENSIONS)).T
        return PlanByClass(
            depth=np.array(self.depths)[depth],
            width=np.array(self.widths)[width],
            nodes=np.array(self.nodes)[nodes],
            margin=np.array(self.margins, dtype=np.float64)[margin],
        )

    def encode(self, plan: PlanByClass) -> Ints:
        """From a plan by class to tier indices [C · 4]; inverse of `decode`."""
        tiers = (self.depths, self.widths, self.nodes, self.margins)
        index = np.empty((len(self.class_names), len(DIMENSIONS)), dtype=np.int64)
        for column, (name, allowed, chosen) in enumerate(zip(DIMENSIONS, tiers, plan, strict=True)):
            for row, value in enumerate(chosen.tolist()):
                if value not in allowed:
                    raise UserError(f"{name} {value} is no tier of the table; expected {allowed}")
                index[row, column] = allowed.index(value)
        return index.ravel()

    def expand(self, plan: PlanByClass, view: View) -> Plan:
        """Give every slot its class's plan; idle slots get the first class's, which is unused."""
        slots = np.where(view.active, view.slo_class, 0)
        return Plan(
            depth=plan.depth[slots],
            width=plan.width[slots],
            nodes=plan.nodes[slots],
            margin=plan.margin[slots],
            node_budget=view.limits.slots * view.limits.max_nodes,
        )

    def to_dict(self) -> dict[str, Any]:
        """The manifest's form: JSON types only."""
        return {
            "class_names": list(self.class_names),
            "depths": list(self.depths),
            "widths": list(self.widths),
            "nodes": list(self.nodes),
            "margins": list(self.margins),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ActionTable:
        """The table that `to_dict` described. Raises UserError for anything else."""
        keys = {"class_names", "depths", "widths", "nodes", "margins"}
        if not isinstance(values, Mapping) or set(values) != keys:
            given = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            raise UserError(f"action table: got {given}; expected the keys {sorted(keys)}")
        if not all(isinstance(values[key], list) for key in keys):
            raise UserError("action table: expected a list under every key")
        if not all(isinstance(name, str) for name in values["class_names"]):
            raise UserError("action table: expected class names as text")
        return cls(**{key: tuple(values[key]) for key in keys})
