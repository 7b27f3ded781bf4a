"""From an episode's seed to the generator that draws it: one rule for all who show or serve it."""

from __future__ import annotations

import numpy as np

FIRST_HELD_OUT_SEED = 1000
"""Comparisons serve the episodes of the seeds from here on; nothing is tuned on these."""

_EPISODE = 1000  # second word of entropy; any number would do, and this one gave published results


def episode_generator(seed: int) -> np.random.Generator:
    """The generator of the episode with that seed, fresh at every call.

    Two words of entropy: a generator that was seeded with one number, as training's are, draws no
    such episode, whatever the number.
    """
    return np.random.default_rng((seed, _EPISODE))
