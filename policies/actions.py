"""The action table: which depths, widths, node caps and margins a learned controller may choose.

One choice of each per SLO class, as indices into tiers: the environment's MultiDiscrete and the
exported controller's network share this table. How many requests may run at once can be a choice,
too, one for the whole engine. What a plan costs or earns is decided elsewhere.
`Actions` is what every kind of table has in common; the other kind, prices in place of plans, is
`policies.price_actions`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller, Floats, Ints, Limits, Plan, View


class PlanByClass(NamedTuple):
    """A plan with one entry a class; every request of the class is given it.

    Where requests of a class are planned apart, it holds their means, which need not be whole.
    """

    depth: Ints  # [C] draft steps, 0 is ordinary decoding
    width: Ints  # [C] beam width
    nodes: Ints  # [C] nodes kept, the root not counted
    margin: Floats  # [C] acceptance margin, 1 is lossless


class Actor(Controller):
    """A controller that carries out what was last decided outside, until it is decided anew.

    `reset` brings back what holds before the first decision.
    """

    def decide(self, action: Ints) -> int:
        """Let tier indices [D] hold from now on; returns for how many classes that is a change.

        Raises UserError for what is no action of the table.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no decide()")

    @property
    def previous(self) -> PlanByClass:
        """The plan of late by class, as features tell it."""
        raise NotImplementedError(f"{type(self).__name__} defines no previous")


class Actions(Protocol):
    """What tables of actions have in common: D tiered dimensions, and who carries a choice out."""

    kind: ClassVar[str]

    @property
    def class_names(self) -> tuple[str, ...]:
        """SLO classes, in the order of the view."""
        ...

    @property
    def nvec(self) -> Ints:
        """[D] number of tiers of each entry of an action."""
        ...

    @property
    def neutral(self) -> Ints:
        """[D] tier indices of the least surprising action, which holds before any decision."""
        ...

    @property
    def lossless(self) -> bool:
        """True when no choice changes the emitted text."""
        ...

    def off(self) -> PlanByClass:
        """The plan by class that features tell of before anything was planned."""
        ...

    def actor(self) -> Actor:
        """A controller that serves by this table."""
        ...

    def figures(self, action: Ints) -> dict[str, float]:
        """What tier indices [D] stand for, by the name under which charts show it."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The manifest's form: JSON types only."""
        ...


DIMENSIONS = ("depth", "width", "nodes", "margin")
"""What is chosen for each class, in the order of the action vector."""

EVERY_SLOT = (1.0,)
SHARES = (0.0625, 0.125, 0.1875, 0.25, 0.375, 0.5, 1.0)
"""Of the slots that may be held, where a table lets them be chosen."""


def most_running(share: float, slots: int) -> int:
    """Requests that may hold a slot when this share of the slots may be held."""
    return math.ceil(share * slots)


@dataclass(frozen=True)
class ActionTable:
    """Tiers of each dimension; index 0 of every dimension by class is "speculation off".

    The margin (the acceptance threshold) is a dimension from the start so that an action keeps
    its shape, but by default with the lossless tier alone: a reward of tokens in time knows
    nothing of the text's quality, so whoever wants to trade it says so with
    `margins=(1.0, 0.8, 0.6)`. An entry of 1 in `nvec` is a legal MultiDiscrete.

    Shares of the slots that may be held (`running`) are chosen once for all classes, by an entry
    behind theirs that a table has only where there is more than one share.
    """

    kind: ClassVar[str] = "tiers"
    class_names: tuple[str, ...]
    depths: tuple[int, ...] = (0, 1, 2, 3, 4, 6)
    widths: tuple[int, ...] = (1, 2, 4, 8)
    nodes: tuple[int, ...] = (2, 4, 8, 16, 32)
    margins: tuple[float, ...] = (1.0,)
    running: tuple[float, ...] = EVERY_SLOT

    def __post_init__(self) -> None:
        check_class_names("action table", self.class_names)
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
        shares = all(type(share) in (int, float) and 0 < share <= 1 for share in self.running)
        rising = shares and list(self.running) == sorted(set(self.running))
        if not (rising and self.running and self.running[-1] == 1):
            raise UserError(
                f"action table: running is {self.running}; expected shares of the slots above 0, "
                "rising, 1.0 last"
            )

    @property
    def sizes_batch(self) -> bool:
        """Whether the share of the slots that may be held is chosen, by the last entry."""
        return len(self.running) > 1

    @property
    def lossless(self) -> bool:
        """True when no choice changes the emitted text."""
        return len(self.margins) == 1

    @property
    def nvec(self) -> Ints:
        """[D] number of tiers of each entry of an action: class by class, as DIMENSIONS, so 4 · C;
        one more where `sizes_batch`."""
        of_class = [len(self.depths), len(self.widths), len(self.nodes), len(self.margins)]
        of_engine = [len(self.running)] if self.sizes_batch else []
        return np.array(of_class * len(self.class_names) + of_engine, dtype=np.int64)

    @property
    def neutral(self) -> Ints:
        """[D] the smallest tier of every dimension by class, speculation off; every slot."""
        neutral = np.zeros(len(self.nvec), dtype=np.int64)
        if self.sizes_batch:
            neutral[-1] = len(self.running) - 1
        return neutral

    def off(self) -> PlanByClass:
        """Ordinary decoding for every class: the plan before the first decision."""
        return self.decode(self.neutral)

    def actor(self) -> HeldPlan:
        """Gives every request the plan of its class."""
        return HeldPlan(self)

    def figures(self, action: Ints) -> dict[str, float]:
        """Depth, width and nodes by class, as `depth/CLASS`; `running` where it is chosen."""
        plan = self.decode(action)
        parts = (("depth", plan.depth), ("width", plan.width), ("nodes", plan.nodes))
        found = {
            f"{part}/{name}": float(chosen[index])
            for index, name in enumerate(self.class_names)
            for part, chosen in parts
        }
        return found | ({"running": self.share(action)} if self.sizes_batch else {})

    def share(self, action: Ints) -> float:
        """The share of the slots that may be held by an action [D] of the table."""
        return float(self.running[int(action[-1])]) if self.sizes_batch else 1.0

    def decode(self, action: Ints) -> PlanByClass:
        """From tier indices [D] to a plan by class. Raises UserError outside the table."""
        of_engine = " and one for running" if self.sizes_batch else ""
        index = tiers_of(action, self.nvec, f"{len(DIMENSIONS)} for each class{of_engine}")
        by_class = index[: len(DIMENSIONS) * len(self.class_names)]
        depth, width, nodes, margin = by_class.reshape(-1, len(DIMENSIONS)).T
        return PlanByClass(
            depth=np.array(self.depths)[depth],
            width=np.array(self.widths)[width],
            nodes=np.array(self.nodes)[nodes],
            margin=np.array(self.margins, dtype=np.float64)[margin],
        )

    def encode(self, plan: PlanByClass, share: float = 1.0) -> Ints:
        """From a plan by class, and the share of the slots, to tier indices [D]; inverse of
        `decode` and `share`."""
        tiers = (self.depths, self.widths, self.nodes, self.margins)
        index = np.empty((len(self.class_names), len(DIMENSIONS)), dtype=np.int64)
        for column, (name, allowed, chosen) in enumerate(zip(DIMENSIONS, tiers, plan, strict=True)):
            for row, value in enumerate(chosen.tolist()):
                if value not in allowed:
                    raise UserError(f"{name} {value} is no tier of the table; expected {allowed}")
                index[row, column] = allowed.index(value)
        if share not in self.running:
            raise UserError(f"running {share} is no tier of the table; expected {self.running}")
        of_engine = [self.running.index(share)] if self.sizes_batch else []
        return np.concatenate([index.ravel(), np.array(of_engine, dtype=np.int64)])

    def expand(self, plan: PlanByClass, view: View, share: float = 1.0) -> Plan:
        """Give every slot its class's plan; idle slots get the first class's, which is unused."""
        slots = np.where(view.active, view.slo_class, 0)
        return Plan(
            depth=plan.depth[slots],
            width=plan.width[slots],
            nodes=plan.nodes[slots],
            margin=plan.margin[slots],
            node_budget=view.limits.slots * view.limits.max_nodes,
            max_running=most_running(share, view.limits.slots) if share < 1 else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The manifest's form: JSON types only. Without a choice of shares it names none."""
        return {
            "class_names": list(self.class_names),
            "depths": list(self.depths),
            "widths": list(self.widths),
            "nodes": list(self.nodes),
            "margins": list(self.margins),
            **({"running": list(self.running)} if self.sizes_batch else {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ActionTable:
        """The table that `to_dict` described. Raises UserError for anything else."""
        keys = {"class_names", "depths", "widths", "nodes", "margins"}
        if not isinstance(values, Mapping) or set(values) - {"running"} != keys:
            given = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            raise UserError(
                f"action table: got {given}; expected the keys {sorted(keys)}, perhaps running"
            )
        return cls(**parts_of("action table", values))


def check_class_names(table: str, names: tuple[str, ...]) -> None:
    """Raise UserError, naming the kind of table, where there are none or one comes twice."""
    if not names or len(set(names)) != len(names):
        raise UserError(f"{table}: class names are {names}; expected at least one, each once")


def tiers_of(action: Ints, nvec: Ints, meaning: str) -> Ints:
    """The tier indices [D] of an action; UserError where they are none below `nvec` [D]."""
    index = np.asarray(action)
    if index.shape != nvec.shape or not np.issubdtype(index.dtype, np.integer):
        raise UserError(
            f"action of shape {index.shape} and type {index.dtype}; expected {len(nvec)} whole "
            f"numbers, {meaning}"
        )
    if (index < 0).any() or (index >= nvec).any():
        raise UserError(
            f"action {index.tolist()} is outside the table; expected entries from 0 to below "
            f"{nvec.tolist()}"
        )
    return index


def parts_of(table: str, values: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """A table's parts by name, from a manifest's lists. Raises UserError where they are none."""
    if not all(isinstance(part, list) for part in values.values()):
        raise UserError(f"{table}: expected a list under every key")
    if not all(isinstance(name, str) for name in values["class_names"]):
        raise UserError(f"{table}: expected class names as text")
    return {key: tuple(part) for key, part in values.items()}


def sized_tiers(class_names: tuple[str, ...]) -> ActionTable:
    """The default table with a choice of how many requests may run."""
    return ActionTable(class_names, running=SHARES)


class HeldPlan(Actor):
    """Gives every request the plan of its class, as it was last decided outside."""

    name = "held"

    def __init__(self, table: ActionTable) -> None:
        self.table, self.lossless = table, table.lossless
        self.decided, self.share = table.off(), 1.0

    def reset(self, limits: Limits) -> None:
        """A new episode begins, with speculation off and every slot for the taking."""
        self.decided, self.share = self.table.off(), 1.0

    def decide(self, action: Ints) -> int:
        """Let the plan of this action hold; how many classes get another one.

        All of them see how many may run.
        """
        before, self.decided = self.decided, self.table.decode(action)
        share, self.share = self.share, self.table.share(action)
        if share != self.share:
            return len(self.table.class_names)
        same = [old == new for old, new in zip(before, self.decided, strict=True)]
        return int((~np.logical_and.reduce(same)).sum())

    @property
    def previous(self) -> PlanByClass:
        """The plan in force."""
        return self.decided

    def plan(self, view: View) -> Plan:
        """The plan in force, by slot."""
        return self.table.expand(self.decided, view, self.share)
