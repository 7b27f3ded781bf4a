"""The odds factor that makes a drafter as wrong about itself as wanted.

Perfect calibration flatters whoever trusts path probabilities, so every result that leans on
synthetic acceptance is repeated with drafts whose expected calibration error is 5 to 8 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from engine.errors import UserError
from engine.replay.synthetic.calibration import JUDGED, reliability
from engine.replay.synthetic.model import Drafting
from engine.replay.synthetic.texts import sample_texts

FARTHEST = 200.0
SEED, TOKENS = 0, 3000


def miscalibrated_odds(drafting: Drafting, easy_shares: Sequence[float], ece: float) -> float:
    """γ (`Drafting.odds_factor`) at which the judged trees have an error of |ece|.

    It is above 1, and drafts overconfident, where `ece` is positive.

    Raises UserError where no odds factor gives so large an error.
    """
    if ece == 0.0:
        return 1.0

    tokens = max(TOKENS // len(easy_shares), 500)

    def excess(log_odds: float) -> float:
        shown = drafting._replace(odds_factor=float(np.exp(log_odds)))
        r = sample_texts(shown, easy_shares, JUDGED, tokens, np.random.default_rng(SEED))
        return reliability(r).ece - abs(ece)

    far = float(np.copysign(np.log(FARTHEST), ece))
    if (most := excess(far)) < 0:
        raise UserError(
            f"synthetic ece {ece}: the most that this pair can have is "
            f"{np.copysign(most + abs(ece), ece):.3f}; ask for less, or for the other sign"
        )
    return float(np.exp(brentq(excess, 0.0, far, xtol=0.05)))
