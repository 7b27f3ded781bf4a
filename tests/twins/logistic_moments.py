"""Twin of `engine.kernels.logistic_moments.logistic_moments`: all chains and positions at once."""

from __future__ import annotations

import numpy as np

from engine.protocol import Floats, Ints


def logistic_moments(
    margin: Floats, predicted: Floats, admitted: Ints, accepted: Ints
) -> tuple[Floats, Floats, Floats]:
    """Curvature [3, K], gradient [2, K] and observations [K]."""
    position = np.arange(margin.shape[1])
    reached = (position <= accepted[:, None]) & (position < admitted[:, None])
    spread = np.where(reached, predicted * (1.0 - predicted), 0.0)
    missed = np.where(reached, (position < accepted[:, None]) - predicted, 0.0)
    moments = spread * margin**2, spread * margin, spread
    curvature = np.array([m.sum(0) for m in moments])
    return curvature, np.array([(missed * margin).sum(0), missed.sum(0)]), reached.sum(0)
