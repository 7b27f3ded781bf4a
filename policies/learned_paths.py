"""An exported controller that observes paths: one request at a time, of whatever class.

A view tells of no tree, so it looks at every tree where the engine asks which nodes to verify, and
leaves that choice to the engine. What it decides by is the latest tree, as in training
(`envs.observing`). Features are `policies.path_features`', all else is `policies.learned`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Bools, Candidates, Limits, Plan, View
from policies.actions import ActionTable
from policies.features import Observation
from policies.learned import LearnedController
from policies.manifest import Manifest
from policies.path_features import observe_paths, trees_of


class LearnedPaths(LearnedController):
    """Decides by the tree that was drafted last for the request that decodes."""

    _tree: Candidates | None
    """That tree, as of a single slot."""

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """`weights` named as in NetworkShape.tensor_shapes. Raises UserError when they misfit."""
        assert isinstance(manifest.actions, ActionTable), "the manifest has seen to it"
        self._layout = trees_of(manifest.actions)
        super().__init__(manifest, weights)

    def reset(self, limits: Limits) -> None:
        """Start as in training: nothing drafted, nothing in force, a decision due at once."""
        super().reset(limits)
        self._tree = None

    def observed(self, view: View) -> Observation:
        """Paths and position of the request. Raises UserError where several decode."""
        slots = np.flatnonzero(view.active)
        if len(slots) != 1:
            raise UserError(
                f"{self.name}: observes one request, and {len(slots)} decode at once; serve with "
                "one slot (--slots 1)"
            )
        slot = slots[0]
        tree = self._tree if view.tokens_out[slot] > 0 else None
        return observe_paths(tree, 0, int(view.context_tokens[slot]), self._layout)

    def plan(self, view: View) -> Plan:
        """The plan in force, which is of every class: it was trained on one, and sees none."""
        return super().plan(view._replace(slo_class=np.zeros_like(view.slo_class)))

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        """None: the engine keeps the likeliest nodes. The tree is remembered."""
        slot = int(np.flatnonzero(view.active)[0])
        self._tree = Candidates._make(part[slot : slot + 1].copy() for part in candidates)
        return None
