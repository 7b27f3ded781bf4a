"""The Gymnasium space that goes with an action codec: what an algorithm is told it may emit."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from policies.action_codec import ActionCodec, BoxCodec, PresetCodec


def space_of(codec: ActionCodec) -> spaces.Space[Any]:
    """MultiDiscrete over tiers, Discrete over presets, Box in [-1, 1]."""
    if isinstance(codec, PresetCodec):
        return spaces.Discrete(codec.outputs)
    if isinstance(codec, BoxCodec):
        return spaces.Box(-1.0, 1.0, (codec.outputs,), np.float32)
    return spaces.MultiDiscrete(codec.table.nvec)
