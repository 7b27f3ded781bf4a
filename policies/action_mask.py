"""Which tiers are of use where: the mask that `maskable-ppo` trains with and its export acts under.

Two rules. Tiers above the engine's limits are ruled out, since the engine would clip them. And a
class of which nothing decodes and nothing waits, while no prompt is being read, has its lowest
tiers alone (speculation off): whatever else is chosen for it does nothing, and would only be noise
in the gradient. What joins within a decision is served without drafts until the next. The lowest
tier of every dimension is always left, and so are all shares of the slots, where these are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.protocol import Bools, Limits
from policies.actions import DIMENSIONS, ActionTable
from policies.features import Feature, Observation


class ActionMask:
    """From observations to the tiers that may be chosen."""

    def __init__(self, table: ActionTable, features: Sequence[Feature], limits: Limits) -> None:
        """`features` are the observation's; the mask reads `active`, `queued`, `prefilling`."""
        names = [feature.name for feature in features]
        classes = table.class_names
        self._active = np.array([names.index(f"{name}.active") for name in classes])
        self._queued = np.array([names.index(f"{name}.queued") for name in classes])
        self._prefilling = names.index("engine.prefilling")
        within = [
            np.array(tiers) <= most
            for tiers, most in (
                (table.depths, limits.max_depth),
                (table.widths, limits.max_width),
                (table.nodes, limits.max_nodes),
            )
        ]
        own = np.concatenate([*within, np.ones(len(table.margins), np.bool_)])
        lowest = np.zeros(len(own), np.bool_)
        sizes = table.nvec[: len(DIMENSIONS)]
        lowest[np.cumsum(sizes) - sizes] = True
        self._present, self._absent = own | lowest, lowest
        self._of_engine = np.ones(len(table.running) if table.sizes_batch else 0, np.bool_)

    def legal(self, observations: Observation) -> Bools:
        """[..., Σ nvec] of observations [..., F], dimensions in the order of an action."""
        waiting = observations[..., self._active] + observations[..., self._queued] > 0
        present = waiting | (observations[..., self._prefilling] > 0)[..., None]
        tiers = np.where(present[..., None], self._present, self._absent)
        by_class = tiers.reshape(*observations.shape[:-1], -1)
        if not len(self._of_engine):
            return by_class
        of_engine = np.broadcast_to(self._of_engine, (*by_class.shape[:-1], len(self._of_engine)))
        return np.concatenate([by_class, of_engine], axis=-1)
