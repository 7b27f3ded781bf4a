"""An exported controller whose decision is one compiled call, for what training makes by default.

That is a feed-forward policy over the aggregate observation that chooses tiers by class, all of
them always legal, as `is_compilable` says. `policies.learned.LearnedController` decides alike with
NumPy alone, in some ten times as long; `policies.exported` takes this one in our engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.profile.pricing import BoundPricing
from engine.protocol import Limits, Plan, View
from policies.action_codec import TierCodec
from policies.actions import ActionTable, PlanByClass, most_running
from policies.compiled_decision import (
    DECIDED,
    DIMENSIONS,
    MARGIN,
    NO_NUMBER,
    Extent,
    Own,
    Priced,
    decide,
    expand,
    lay_out,
    lengths,
)
from policies.compiled_features import UNPRICED, Seen, nothing, seen
from policies.features import lowest, require_finite
from policies.fleet_shifts import WATCHED
from policies.learned import LearnedController
from policies.manifest import AGGREGATE, Manifest
from policies.predicted_cost import predicted_steps


def is_compilable(manifest: Manifest) -> bool:
    """Whether `CompiledController` carries out what the manifest says."""
    codec = manifest.codec
    tiers = isinstance(manifest.actions, ActionTable) and isinstance(codec, TierCodec)
    plain = not manifest.masked and not manifest.network.lstm
    return tiers and plain and manifest.observation == AGGREGATE


class CompiledController(LearnedController):
    """As `LearnedController`; see `is_compilable` for which ones.

    The plan in force stands in `_own`, not in who carries actions out.
    """

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """`weights` named as in NetworkShape.tensor_shapes. Raises UserError when they misfit."""
        table = manifest.actions
        if not (is_compilable(manifest) and isinstance(table, ActionTable)):
            raise TypeError(f"{manifest.name}: no such policy is compiled; take LearnedController")
        self._table = table
        self._packed = _packed(manifest, weights)
        super().__init__(manifest, weights)
        self._load_kernels()

    @classmethod
    def kind_of(cls, manifest: Manifest) -> type[LearnedController]:
        """This one where it can be."""
        return cls if is_compilable(manifest) else super().kind_of(manifest)

    def reset(self, limits: Limits) -> None:
        """Start as in training: nothing seen, nothing in force, a decision due at once."""
        super().reset(limits)
        self._extent = _extent(self.manifest, self._table, len(self._packed), limits.slots)
        floats, singles, ints = lengths(self._extent)
        arrays = np.zeros(floats), np.zeros(singles, np.float32), np.zeros(ints, np.int64)
        self._arrays = np.array(self._extent), *arrays
        self._own = lay_out(self._extent, *arrays)
        self._own.weights[:] = self._packed
        _write_manifest(self.manifest, self._table, self._own)
        self._own.most[:] = limits[1:]
        self._own.in_force[:] = self._table.off()
        self._own.looked_s[:], self._own.request[:] = -1.0, -1
        self._watched = np.zeros(self._extent.classes, WATCHED)
        self._most: int | None = None
        self._budget = limits.slots * limits.max_nodes

    @property
    def in_force(self) -> PlanByClass:
        """The plan by class, as it was last decided."""
        depth, width, nodes = self._own.in_force[:MARGIN].astype(np.int64)
        return PlanByClass(depth, width, nodes, self._own.in_force[MARGIN].copy())

    def plan(self, view: View) -> Plan:
        """Decide when the last decision has stood for `hold` iterations, else keep it."""
        if self._held == 0:
            if view.class_names != self._table.class_names:
                self.refuse_classes(view)
            self._decide(view)
            share = self._table.share(self._own.chosen)
            self._most = most_running(share, view.limits.slots) if share < 1 else None
        self._held = (self._held + 1) % self.manifest.hold
        slots = len(view.active)
        sizes, margin = np.empty((3, slots), np.int64), np.empty(slots)
        expand(view.active, view.slo_class, self._own.in_force, sizes, margin)
        return Plan(sizes[0], sizes[1], sizes[2], margin, self._budget, max_running=self._most)

    def _decide(self, view: View) -> None:
        """Let the greedy choice be in force. Raises UserError for a feature that is no number."""
        pricing = view.pricing
        if isinstance(pricing, BoundPricing):
            decoding, context = pricing.decoding, pricing.context_tokens
            priced = Priced(*pricing.profile.passes, decoding, context, pricing.undrafted_tokens)
            ended = self._ended(seen(view), priced, True, UNPRICED, UNPRICED)
            if ended == DECIDED:
                return
        else:
            ended = -1
        if ended != NO_NUMBER:
            steps_s = UNPRICED, UNPRICED
            if pricing is not None:
                steps_s = predicted_steps(view, self._own.in_force)
            ended = self._ended(seen(view), NOT_PRICED, False, *steps_s)
        if ended == NO_NUMBER:
            features = self.manifest.features
            require_finite(self._own.observation[: len(features)], features)

    def _ended(
        self, of_view: Seen, priced: Priced, is_priced: bool, ordinary_s: float, planned_s: float
    ) -> int:
        """How a decision ended."""
        ended: int = decide(
            of_view, priced, is_priced, ordinary_s, planned_s, *self._arrays, self._watched
        )  # fmt: skip
        return ended

    def _load_kernels(self) -> None:
        """Decide on nothing, so that loading the kernels is charged to no decision."""
        self.reset(Limits(slots=1))
        engine = nothing(len(self._table.class_names))
        self._ended(engine, NOT_PRICED, False, UNPRICED, UNPRICED)
        sizes, margin = np.empty((3, 1), np.int64), np.empty(1)
        expand(engine.active, engine.slo_class, self._own.in_force, sizes, margin)
        self.reset(Limits())


NOT_PRICED = Priced(
    np.zeros((4, 1)), np.zeros((4, 3)), np.zeros(1, np.bool_), np.zeros(1, np.int64),
    np.zeros(1, np.int64),
)  # fmt: skip
"""Not looked at."""


def _extent(manifest: Manifest, table: ActionTable, weights: int, slots: int) -> Extent:
    shape = manifest.network
    return Extent(
        features=len(manifest.features),
        inputs=shape.layers[0],
        classes=len(table.class_names),
        slots=slots,
        dimensions=len(table.nvec),
        layers=len(shape.layers),
        weights=weights,
        widest=max(shape.layers),
        tiers=max(map(len, _tiers(table))),
        is_tanh=int(shape.activation == "tanh"),
    )


def _packed(manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Layer by layer the weights [in, out] and the bias, in one row."""
    parts: list[NDArray[np.float32]] = []
    for name in (n for n in manifest.network.tensor_shapes() if n in weights):
        tensor = weights[name]
        parts.append(tensor.T.ravel() if name.endswith("weight") else tensor)
    return np.concatenate(parts).astype(np.float32)


def _write_manifest(manifest: Manifest, table: ActionTable, own: Own) -> None:
    """What the kernel reads of the manifest but for the weights."""
    own.low[:] = lowest(len(table.class_names))
    own.scale[:], own.clip[:] = 1.0, np.inf
    normaliser = manifest.normaliser
    if normaliser is not None:
        own.mean[:], own.clip[:] = normaliser.mean, normaliser.clip
        own.scale[:] = np.sqrt(np.array(normaliser.var) + normaliser.epsilon)
    for part, values in enumerate(_tiers(table)):
        own.tiers[part, : len(values)] = values
    own.sizes[:], own.nvec[:] = manifest.network.layers, table.nvec


def _tiers(table: ActionTable) -> tuple[tuple[float, ...], ...]:
    """Values of each of the DIMENSIONS."""
    return (table.depths, table.widths, table.nodes, table.margins)[:DIMENSIONS]
