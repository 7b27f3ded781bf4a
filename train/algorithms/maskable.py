"""PPO over tiers with those ruled out that are of no use: `policies.action_mask` says which.

The environment tells the masks by its method `action_masks`, which sb3-contrib calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO

from train.algorithms.on_policy import OnPolicy
from train.algorithms.tier_policy import MaskableTierPolicy
from train.algorithms.timing import TimedMaskableBuffer


class TimedMaskablePPO(OnPolicy, MaskablePPO):
    """PPO with invalid actions masked (Huang & Ontañón 2022)."""

    POLICY: ClassVar[str | type] = MaskableTierPolicy
    FIXED: ClassVar[dict[str, Any]] = {"rollout_buffer_class": TimedMaskableBuffer}

    def greedy(self, observations: Iterable[Any], legal: Any = None) -> NDArray[Any]:
        """Deterministic actions under the masks `legal`."""
        chosen = [
            self.predict(rows, deterministic=True, action_masks=masks)[0]
            for rows, masks in zip(observations, legal, strict=True)
        ]
        return np.stack(chosen)
