"""Is a view unlike those that a controller was made for?

A controller answers it itself where it has a method `novel(view) -> bool`. Of an exported one the
manifest keeps no ranges, but where it was trained with a normaliser, mean μ and variance σ² of each
feature; then

    score = mean over features of min(z², 9),  z = (feature − μ) / max(σ, 0.02)

which is at most 1 on average over the views of its training. A view counts as novel while at least
8 of the last 10 scores were above 3 (research/rl_toolkits.md §3.2; the limit ought to be the 99.5 %
quantile of the score on held-out episodes, which exports do not carry, so ours is a guess on the
safe side). Features of the previous plan are left out, since they tell of the controller and not of
its world. Of an export without a normaliser nothing is known, and nothing is ever novel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.protocol import Controller, View
from policies.delegate import Delegate

Novel = Callable[[View], bool]
LIMIT, HIGHEST, LEAST_SPREAD = 3.0, 9.0, 0.02
ALARMS, RECENT = 8, 10


def novelty_of(controller: Controller) -> Novel | None:
    """Who tells novel views for the controller, or for what it wraps; None where nobody can."""
    while True:
        own: Novel | None = getattr(controller, "novel", None)
        if own is not None:
            return own
        if not isinstance(controller, Delegate):
            break
        controller = controller.controller
    manifest = getattr(controller, "manifest", None)
    if getattr(manifest, "normaliser", None) is None:
        return None
    return TrainingViews(manifest).novel


class TrainingViews:
    """The views of an exported controller's training, as far as its manifest describes them."""

    def __init__(self, manifest: Any) -> None:
        """`manifest`: a `policies.manifest.Manifest` with a normaliser."""
        self._previous = manifest.actions.off()
        self._told = np.array([".previous_" not in f.name for f in manifest.features])
        self._mean = np.array(manifest.normaliser.mean)[self._told]
        spread = np.sqrt(np.array(manifest.normaliser.var)[self._told])
        self._spread = np.maximum(spread, LEAST_SPREAD)
        self._alarms: deque[bool] = deque(maxlen=RECENT)

    def score(self, view: View) -> float:
        """How far the view lies from the middle of training, from 0 to 9; NaN where it is none."""
        from policies.features import observe

        z = (observe(view, self._previous)[self._told] - self._mean) / self._spread
        return float(np.minimum(z * z, HIGHEST).mean())

    def novel(self, view: View) -> bool:
        """Whether most of the latest views, this one among them, lay far out."""
        self._alarms.append(not self.score(view) <= LIMIT)
        return sum(self._alarms) >= ALARMS
