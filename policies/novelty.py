"""Is a view unlike those that a controller was made for?

A controller answers it itself where it has a method `novel(view) -> bool`. An exported one says in
its manifest (`training["observed"]`) what it saw in its last held-out episodes: mean μ and variance
σ² of each feature, and the 99.5 % quantile of

    score = mean over features of min(z², 9),  z = (feature − μ) / max(σ, 0.02)

which is at most 1 on average over those views. A view counts as novel while at least 8 of the last
10 scores were above that quantile (research/rl_toolkits.md §3.2). Features of the previous plan are
left out, since they tell of the controller and not of its world, and so are those that tell of
earlier views (`policies.shifts`), since only this one is looked at. Of an export that saw no
held-out episodes, as one trained on live, nothing is known, and nothing is ever novel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Controller, Floats, View
from policies.delegate import Delegate
from policies.features import Feature, Observation, observe

Novel = Callable[[View], bool]
FeaturesOf = Callable[..., Observation]
HIGHEST, LEAST_SPREAD, QUANTILE = 9.0, 0.02, 0.995
ALARMS, RECENT = 8, 10
UNTOLD = (".arrivals", ".since_shift")


def observed_of(rows: Observation, features: Sequence[Feature]) -> dict[str, Any]:
    """For the manifest: what observations [T, F] were like, JSON types only."""
    mean, variance = rows.mean(axis=0, dtype=np.float64), rows.var(axis=0, dtype=np.float64)
    told = _told(features)
    scores = _scores(rows[:, told], mean[told], variance[told])
    return {
        "mean": mean.tolist(),
        "variance": variance.tolist(),
        "limit": float(np.quantile(scores, QUANTILE)),
        "decisions": len(rows),
    }


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
    if manifest is None or manifest.training.get("observed") is None:
        return None
    return TrainingViews(manifest, getattr(controller, "features_of", None) or observe).novel


class TrainingViews:
    """The views of an exported controller's training, as far as its manifest describes them."""

    def __init__(self, manifest: Any, features_of: FeaturesOf = observe) -> None:
        """`manifest`: a `policies.manifest.Manifest` with `training["observed"]`; UserError.

        `features_of` computes features as `observe` does.
        """
        self._features_of = features_of
        observed = manifest.training["observed"]
        try:
            mean, variance = (np.array(observed[k], np.float64) for k in ("mean", "variance"))
            self._limit = float(observed["limit"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{manifest.name}: what it observed in training cannot be read ({error}); export "
                "the controller again"
            ) from error
        if not mean.shape == variance.shape == (len(manifest.features),):
            raise UserError(
                f"{manifest.name}: what it observed in training has {mean.size} features; expected "
                f"{len(manifest.features)}, so export the controller again"
            )
        self._previous = manifest.actions.off()
        self._told = _told(manifest.features)
        self._mean, self._variance = mean[self._told], variance[self._told]
        self._alarms: deque[bool] = deque(maxlen=RECENT)

    def score(self, view: View) -> float:
        """How far the view lies from the middle of training, from 0 to 9; NaN where it is none."""
        row = self._features_of(view, self._previous)[self._told]
        return float(_scores(row[None], self._mean, self._variance)[0])

    def novel(self, view: View) -> bool:
        """Whether most of the latest views, this one among them, lay far out."""
        self._alarms.append(not self.score(view) <= self._limit)
        return sum(self._alarms) >= ALARMS


def _told(features: Sequence[Feature]) -> Bools:
    """[F] which features tell of a view and of nothing else."""
    return np.array([not f.name.endswith(UNTOLD) and ".previous_" not in f.name for f in features])


def _scores(rows: Observation, mean: Floats, variance: Floats) -> Floats:
    """[T] of observations [T, F]."""
    z = (rows - mean) / np.maximum(np.sqrt(variance), LEAST_SPREAD)
    scores: Floats = np.minimum(z * z, HIGHEST).mean(axis=1)
    return scores
