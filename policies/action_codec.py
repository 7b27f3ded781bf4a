"""What learning algorithms emit, and the tiers that it stands for: three faces of one action table.

PPO and its kin choose a tier of every dimension, DQN one of a table of whole plans, SAC and TQC a
number between -1 and 1 for every dimension. A codec takes each to tier indices [D], D dimensions of
`policies.actions.ActionTable` (4 a class, perhaps one for the engine) or of
`policies.price_actions.PriceActions` (which has no whole plans to choose from), in training and in
an exported controller alike. NumPy only; the spaces of Gymnasium that go with them are
`train.action_space`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Ints
from policies.actions import DIMENSIONS, Actions, ActionTable

Outputs = NDArray[np.float32]

MOST_PRESETS = 256
PRESETS_VERSION = 1
# Depth, width and nodes beside speculation off. Chains and trees from one token to all that the
# engine can draft, each about half as much again as the one before it.
PLANS = (
    *((1, 1, 2), (2, 1, 2), (3, 1, 4), (4, 1, 4), (6, 1, 8)),
    *((1, 4, 4), (2, 2, 4), (2, 4, 8), (3, 2, 8), (3, 4, 8), (3, 4, 16)),
    *((4, 4, 16), (4, 8, 32), (6, 4, 16), (6, 8, 32)),
)


class ActionCodec(Protocol):
    """From what an algorithm emits, or its network, to tier indices."""

    kind: ClassVar[str]

    @property
    def table(self) -> Actions:
        """The tiers."""
        ...

    @property
    def outputs(self) -> int:
        """Numbers that an acting network gives."""
        ...

    def decode(self, actions: NDArray[Any]) -> Ints:
        """From actions [R, …], a row for each environment, to tier indices [R, D]; UserError for
        what is no action."""
        ...

    def choose(self, outputs: Outputs) -> Ints:
        """The greedy choice of a network's outputs, tier indices [D]; of equals the lowest."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The manifest's form without the table: JSON types only."""
        ...


@dataclass(frozen=True)
class TierCodec:
    """A tier of every dimension by itself: outputs are logits, one for each tier."""

    kind: ClassVar[str] = "tiers"
    table: Actions
    masked: bool = False
    """Whether tiers without use are ruled out (`policies.action_mask`), as in training."""

    @property
    def outputs(self) -> int:
        """Σ nvec."""
        return int(self.table.nvec.sum())

    def decode(self, actions: NDArray[Any]) -> Ints:
        """Actions are tier indices already; the engine's side refuses those outside the table."""
        return np.asarray(actions)

    def choose(self, outputs: Outputs) -> Ints:
        """The likeliest tier of every dimension."""
        rows, columns, shape = self._layout
        padded = np.full(shape, -np.inf, dtype=np.float32)
        padded[rows, columns] = outputs
        return np.argmax(padded, axis=1)

    @cached_property
    def _layout(self) -> tuple[Ints, Ints, tuple[int, int]]:
        # One row a dimension, so that a single argmax serves all of them.
        nvec = self.table.nvec
        rows = np.repeat(np.arange(len(nvec)), nvec)
        columns = np.concatenate([np.arange(n) for n in nvec])
        return rows, columns, (len(nvec), int(nvec.max()))

    def to_dict(self) -> dict[str, Any]:
        """Its kind, and whether it is masked."""
        return {"kind": self.kind, "masked": self.masked}


@dataclass(frozen=True)
class PresetCodec:
    """One of N whole plans: outputs are values, one for each preset.

    Classes in one group share a plan; presets are all ways to give each group one of the `plans`,
    the last group's changing fastest, so preset 0 is the first plan, speculation off, for all.
    Where the table has shares of the slots to choose from, each way comes with each of them, the
    share changing faster still.
    """

    kind: ClassVar[str] = "presets"
    table: ActionTable
    groups: tuple[tuple[str, ...], ...]
    """Class names, each in one group."""
    plans: tuple[tuple[int, ...], ...]
    """Tier indices of depth, width, nodes and margin."""

    def __post_init__(self) -> None:
        named = sorted(name for group in self.groups for name in group)
        if named != sorted(self.table.class_names) or not all(self.groups):
            raise UserError(
                f"presets: the groups are {self.groups}; expected each of the classes "
                f"{', '.join(self.table.class_names)} in one group"
            )
        tiers = self.table.nvec[: len(DIMENSIONS)].tolist()
        legal = all(
            len(plan) == len(tiers)
            and all(type(i) is int and 0 <= i < n for i, n in zip(plan, tiers, strict=True))
            for plan in self.plans
        )
        if not legal or len(set(self.plans)) != len(self.plans) or not self.plans:
            raise UserError(
                f"presets: the plans are {self.plans}; expected tier indices below {tiers}, each "
                "plan once"
            )
        if self.table.depths[self.plans[0][0]] != 0:
            raise UserError("presets: expected depth 0 first, so that speculation can be off")
        if self.outputs > MOST_PRESETS:
            shares = len(self.table.running)
            raise UserError(
                f"presets: {len(self.plans)} plans for {len(self.groups)} groups"
                f"{f', each with {shares} shares of the slots,' if shares > 1 else ''} are "
                f"{self.outputs} presets; expected at most {MOST_PRESETS}: take fewer groups, "
                f"such as presets=global{', or --actions tiers' if shares > 1 else ''}"
            )

    @property
    def outputs(self) -> int:
        """The number of presets."""
        return int(len(self.plans) ** len(self.groups) * len(self.table.running))

    @cached_property
    def presets(self) -> Ints:
        """[N, D] tier indices of each."""
        counts = (len(self.plans),) * len(self.groups) + (len(self.table.running),)
        *grids, share = np.indices(counts).reshape(len(counts), -1)
        group_of = {name: g for g, group in enumerate(self.groups) for name in group}
        by_class = [np.array(self.plans)[grids[group_of[name]]] for name in self.table.class_names]
        of_engine = [share[:, None]] if self.table.sizes_batch else []
        return np.concatenate([*by_class, *of_engine], axis=1)

    def decode(self, actions: NDArray[Any]) -> Ints:
        """Actions [R] are numbers of presets."""
        index = np.asarray(actions).reshape(-1)
        if index.dtype.kind not in "iu" or (index < 0).any() or (index >= self.outputs).any():
            raise UserError(
                f"actions {index.tolist()} of type {index.dtype}; expected numbers of presets, "
                f"0 to {self.outputs - 1}"
            )
        return self.presets[index]

    def choose(self, outputs: Outputs) -> Ints:
        """The preset of most value."""
        return self.presets[int(np.argmax(outputs))]

    @property
    def hash(self) -> str:
        """SHA-256 of the enumerated table: equal only where preset i is the same plan."""
        text = json.dumps([PRESETS_VERSION, self.table.to_dict(), self.presets.tolist()])
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Groups and plans, from which the table is enumerated, its version and its hash."""
        return {
            "kind": self.kind,
            "version": PRESETS_VERSION,
            "groups": [list(group) for group in self.groups],
            "plans": [list(plan) for plan in self.plans],
            "hash": self.hash,
        }


@dataclass(frozen=True)
class BoxCodec:
    """A number in [-1, 1] for every dimension with a choice: outputs are its inverse tanh.

    The interval is cut into as many equal parts as the dimension has tiers, so that a number drawn
    evenly draws the tiers evenly; what lies outside counts as its nearer end.
    """

    kind: ClassVar[str] = "box"
    table: Actions

    @property
    def outputs(self) -> int:
        """Dimensions with more than one tier."""
        return len(self._chosen)

    def decode(self, actions: NDArray[Any]) -> Ints:
        """Actions [R, outputs]."""
        given = np.asarray(actions, dtype=np.float32)
        if given.ndim != 2 or given.shape[1] != self.outputs or not np.isfinite(given).all():
            raise UserError(
                f"actions of shape {given.shape}; expected {self.outputs} finite numbers for each "
                "environment"
            )
        tiers = np.zeros((len(given), len(self.table.nvec)), dtype=np.int64)
        counts = self.table.nvec[self._chosen]
        part = np.floor((np.clip(given, -1.0, 1.0) + 1.0) * 0.5 * counts).astype(np.int64)
        tiers[:, self._chosen] = np.minimum(part, counts - 1)
        return tiers

    def choose(self, outputs: Outputs) -> Ints:
        """tanh of the outputs, then as `decode`."""
        return self.decode(np.tanh(outputs)[None])[0]

    def middle(self, tiers: Ints) -> Outputs:
        """The outputs [outputs] that choose these tier indices [D], each in the middle of its part
        of the interval."""
        part = (tiers[self._chosen] + 0.5) / self.table.nvec[self._chosen]
        return np.arctanh(2.0 * part - 1.0).astype(np.float32)

    @cached_property
    def _chosen(self) -> Ints:
        return np.flatnonzero(self.table.nvec > 1)

    def to_dict(self) -> dict[str, Any]:
        """Its kind: all else is the table's."""
        return {"kind": self.kind}


def presets_of(table: ActionTable, groups: Sequence[Sequence[str]]) -> PresetCodec:
    """Speculation off, and PLANS whose depth, width and nodes are tiers, for each of the groups."""
    tiers = (table.depths, table.widths, table.nodes)
    off = (0,) * len(DIMENSIONS)
    drafting = (
        (*(of.index(value) for of, value in zip(tiers, plan, strict=True)), 0)
        for plan in PLANS
        if all(value in of for of, value in zip(tiers, plan, strict=True))
    )
    return PresetCodec(table, tuple(tuple(group) for group in groups), (off, *drafting))


def codec_from_dict(values: Any, table: Actions) -> ActionCodec:
    """The codec over `table` that `to_dict` described. Raises UserError for anything else."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    keys: dict[Any, set[str]] = {
        "tiers": {"kind", "masked"},
        "presets": {"kind", "version", "groups", "plans", "hash"},
        "box": {"kind"},
    }
    if not isinstance(kind, str) or kind not in keys or set(values) != keys[kind]:
        got = sorted(values) if isinstance(values, Mapping) else type(values).__name__
        raise UserError(
            f"action codec: got {got} of kind {kind!r}; expected one of {', '.join(keys)} with its "
            "own keys"
        )
    whole_plans = isinstance(table, ActionTable)
    if not whole_plans and (kind == "presets" or values.get("masked")):
        raise UserError(
            f"action codec: {kind if kind == 'presets' else 'masks'} are of whole plans, and the "
            f"actions are {table.kind}; export the controller again"
        )
    if kind == "tiers":
        if type(values["masked"]) is not bool:
            raise UserError(
                f"action codec: masked is {values['masked']!r}, no truth value; export the "
                "controller again"
            )
        return TierCodec(table, values["masked"])
    if kind == "box":
        return BoxCodec(table)
    if values["version"] != PRESETS_VERSION:
        raise UserError(
            f"presets of version {values['version']!r}; this DraftGym reads {PRESETS_VERSION}, so "
            "export the controller with it again"
        )
    assert isinstance(table, ActionTable)
    groups, plans = values["groups"], values["plans"]
    for lists in (groups, plans):
        if not isinstance(lists, list) or not all(isinstance(row, list) for row in lists):
            raise UserError("presets: groups and plans are no lists of lists")
    if not all(isinstance(name, str) for group in groups for name in group):
        raise UserError("presets: expected class names as text in every group")
    codec = PresetCodec(table, tuple(map(tuple, groups)), tuple(map(tuple, plans)))
    if codec.hash != values["hash"]:
        raise UserError("presets: the table does not match its hash; export the controller again")
    return codec
