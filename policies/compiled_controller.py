"""An exported controller whose decision is one compiled call, for what training makes by default.

That is a feed-forward policy over the aggregate observation that chooses tiers by class, all of
them always legal, as `is_compilable` says. `policies.learned.LearnedController` decides alike with
NumPy alone, in some ten times as long; `policies.exported` takes this one in our engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.protocol import Limits, Plan, View
from policies.action_codec import TierCodec
from policies.actions import ActionTable, PlanByClass, most_running
from policies.compiled_decision import DIMENSIONS, Memory, Policy, decide, expand
from policies.compiled_features import UNPRICED, load_kernels, nothing, seen, steps_of
from policies.features import lowest, require_finite
from policies.fleet_shifts import WATCHED
from policies.learned import LearnedController
from policies.manifest import AGGREGATE, Manifest


def is_compilable(manifest: Manifest) -> bool:
    """Whether `CompiledController` carries out what the manifest says."""
    codec = manifest.codec
    tiers = isinstance(manifest.actions, ActionTable) and isinstance(codec, TierCodec)
    plain = not manifest.masked and not manifest.network.lstm
    return tiers and plain and manifest.observation == AGGREGATE


class CompiledController(LearnedController):
    """As `LearnedController`; see `is_compilable` for which ones.

    The plan in force stands in `_memory`, not in who carries actions out.
    """

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """`weights` named as in NetworkShape.tensor_shapes. Raises UserError when they misfit."""
        table = manifest.actions
        if not (is_compilable(manifest) and isinstance(table, ActionTable)):
            raise TypeError(f"{manifest.name}: no such policy is compiled; take LearnedController")
        self._table = table
        self._policy = _policy(manifest, table, weights)
        super().__init__(manifest, weights)
        load_kernels()
        self._load_kernels()

    @classmethod
    def kind_of(cls, manifest: Manifest) -> type[LearnedController]:
        """This one where it can be."""
        return cls if is_compilable(manifest) else super().kind_of(manifest)

    def reset(self, limits: Limits) -> None:
        """Start as in training: nothing seen, nothing in force, a decision due at once."""
        super().reset(limits)
        classes, policy = len(self._table.class_names), self._policy
        self._policy = policy._replace(most=np.array(limits[1:], float))
        self._memory = Memory(
            watched=np.zeros(classes, WATCHED),
            request=np.full(limits.slots, -1),
            looked_s=np.full(1, -1.0),
            in_force=np.array(self._table.off(), float),
            chosen=np.zeros(len(policy.nvec), np.int64),
            exact=np.zeros(len(policy.low)),
            observation=np.zeros(len(policy.low), np.float32),
            count=np.zeros(classes, np.int64),
            newcomers=np.zeros(classes, np.int64),
            past=np.zeros((2, classes)),
            layers=np.zeros((2, int(policy.sizes.max())), np.float32),
        )
        self._most: int | None = None
        self._budget = limits.slots * limits.max_nodes

    @property
    def in_force(self) -> PlanByClass:
        """The plan by class, as it was last decided."""
        depth, width, nodes, margin = self._memory.in_force
        return PlanByClass(*(part.astype(np.int64) for part in (depth, width, nodes)), margin)

    def plan(self, view: View) -> Plan:
        """Decide when the last decision has stood for `hold` iterations, else keep it."""
        memory = self._memory
        if self._held == 0:
            if view.class_names != self._table.class_names:
                self.refuse_classes(view)
            steps_s = steps_of(view, memory.in_force)
            if not decide(seen(view), *steps_s, self._policy, memory):
                require_finite(memory.observation, self.manifest.features)
            share = self._table.share(memory.chosen)
            self._most = most_running(share, view.limits.slots) if share < 1 else None
        self._held = (self._held + 1) % self.manifest.hold
        slots = len(view.active)
        sizes, margin = np.empty((3, slots), np.int64), np.empty(slots)
        expand(view.active, view.slo_class, memory.in_force, sizes, margin)
        return Plan(sizes[0], sizes[1], sizes[2], margin, self._budget, max_running=self._most)

    def _load_kernels(self) -> None:
        """Decide on nothing, so that loading the kernels is charged to no decision."""
        self.reset(Limits(slots=1))
        engine, memory = nothing(len(self._table.class_names)), self._memory
        decide(engine, UNPRICED, UNPRICED, self._policy, memory)
        sizes, margin = np.empty((3, 1), np.int64), np.empty(1)
        expand(engine.active, engine.slo_class, memory.in_force, sizes, margin)
        self.reset(Limits())


def _policy(
    manifest: Manifest, table: ActionTable, weights: Mapping[str, NDArray[np.float32]]
) -> Policy:
    """What the kernel takes; `most` is filled in by `reset`."""
    shape, normaliser, inputs = manifest.network, manifest.normaliser, len(manifest.features)
    mean, scale, clip = np.zeros(inputs), np.ones(inputs), np.inf
    if normaliser is not None:
        mean, clip = np.array(normaliser.mean), float(normaliser.clip)
        scale = np.sqrt(np.array(normaliser.var) + normaliser.epsilon)
    parts: list[NDArray[np.float32]] = []
    for name, tensor in ((n, weights[n]) for n in shape.tensor_shapes() if n in weights):
        parts.append(tensor.T.ravel() if name.endswith("weight") else tensor)
    values = (table.depths, table.widths, table.nodes, table.margins)
    tiers = np.zeros((DIMENSIONS, max(map(len, values))))
    for part, of in enumerate(values):
        tiers[part, : len(of)] = of
    return Policy(
        low=lowest(len(table.class_names)),
        mean=mean,
        scale=scale,
        clip=clip,
        sizes=np.array(shape.layers),
        weights=np.concatenate(parts).astype(np.float32),
        is_tanh=shape.activation == "tanh",
        nvec=table.nvec,
        tiers=tiers,
        most=np.ones(3),
    )
