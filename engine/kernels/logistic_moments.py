"""What verified chains say of a logistic model of acceptance: the sums that a Newton step takes.

The model and what its fit is for are `policies.adaptive_verification`'s.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints


@njit(cache=True)
def logistic_moments(
    margin: Floats, predicted: Floats, admitted: Ints, accepted: Ints
) -> tuple[Floats, Floats, Floats]:
    """Curvature [3, K] (of ww, wb and bb), gradient [2, K] (of w and b) and observations [K].

    Of chains [n] with margins [n, K] of which `admitted` drafts [n] were verified and `accepted`
    [n] kept. A chain reached position j, from 0, where j drafts before it were accepted, and there
    acceptance was `predicted` [n, K] to be so likely.
    """
    chains, positions = margin.shape
    curvature, gradient = np.zeros((3, positions)), np.zeros((2, positions))
    seen = np.zeros(positions)
    for c in range(chains):
        for j in range(min(accepted[c] + 1, admitted[c], positions)):
            x, chance = margin[c, j], predicted[c, j]
            spread = chance * (1.0 - chance)
            missed = (1.0 if j < accepted[c] else 0.0) - chance
            curvature[0, j] += spread * x**2
            curvature[1, j] += spread * x
            curvature[2, j] += spread
            gradient[0, j] += missed * x
            gradient[1, j] += missed
            seen[j] += 1
    return curvature, gradient, seen
