"""Do the parameters, fitted to some published figures of a pair, predict the others?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol import Floats
from engine.replay.synthetic.fit import fit_pair, predicted
from engine.replay.synthetic.model import Tier
from engine.replay.synthetic.pairs import Pair, Published

Keep = Callable[[Tier], bool]
SPLITS: Mapping[str, Keep] = {
    "deeper": lambda tier: tier.depth <= 5,
    "between": lambda tier: tier.depth != 5,
}
"""By name which rows are fitted: depth 7 is predicted from 3 and 5, or depth 5 from 3 and 7."""


class Prediction(NamedTuple):
    """A held-out figure."""

    pair: str
    kind: str
    split: str
    published: Published
    fitted: float
    """Tokens an iteration, with the odds factor of the fitted rows."""
    calibrated: float
    """The same with calibrated draft probabilities; for chains there is no difference."""


def predict_held_out(pair: Pair, split: str) -> list[Prediction]:
    """Fit on the split's rows, predict all others of every kind of text."""
    keep = SPLITS[split]
    shown = {name: [f for f in kind.published if keep(f.tier)] for name, kind in pair.kinds.items()}
    fit = fit_pair(shown)
    honest = fit._replace(drafting=fit.drafting._replace(odds_factor=1.0))
    found = []
    for name, kind in pair.kinds.items():
        held = [f for f in kind.published if not keep(f.tier)]
        tiers = [f.tier for f in held]
        both = zip(held, predicted(fit, name, tiers), predicted(honest, name, tiers), strict=True)
        found += [Prediction(pair.name, name, split, *row) for row in both]
    return found


def errors(predictions: Sequence[Prediction], calibrated: bool = False) -> Floats:
    """Relative errors [n] of tokens an iteration, as absolute values."""
    model = np.array([p.calibrated if calibrated else p.fitted for p in predictions])
    return np.abs(model / np.array([p.published.tokens for p in predictions]) - 1.0)
