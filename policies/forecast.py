"""What the nodes of a tree that is not drafted yet will bring, learned from those that were.

By class, layer and rank among its layer, the mean path probability that the drafter showed; where
little was seen, what is known of the layer above and of other classes stands in. How far such
probabilities are off is learned by layer: drafts accepted over drafts expected. Both forget.
"""

from __future__ import annotations

import numpy as np

from engine.kernels.forecast import class_layers, learn_acceptance, learn_layers
from engine.protocol import Bools, Candidates, Floats, Ints

KEEP = 0.98  # weight of what was seen before, for every iteration that drafts
PRIOR = 4.0  # trees that a prior counts for
CALIBRATION_PRIOR = 20.0  # accepted drafts that a calibration of 1 counts for
FIRST = 0.6  # path probability of a first node that nothing is known of, as a share of its parent's
SIBLINGS = 0.25  # of a further node, as a share of its older sibling's
LARGEST_SCALE = 1.5


class Forecast:
    """Means by class and layer."""

    def __init__(self, classes: int, depth: int, ranks: int) -> None:
        """Of trees of up to `depth` layers; of each, the `ranks` likeliest nodes."""
        self.seen = np.zeros((classes, depth, ranks))
        self.total = np.zeros((classes, depth, ranks))
        """Trees that had such a node, and their sum of its path probability."""
        self._expected = np.zeros(depth)
        self._accepted = np.zeros(depth)
        self.scale = np.ones(depth)
        """Accepted over expected drafts, which never rises with the layer."""

    def by_class(self) -> Floats:
        """Path probabilities [C, D, W], calibrated; they fall with layer and rank."""
        return class_layers(self.seen, self.total, self.scale, PRIOR, FIRST, SIBLINGS)

    def learn_trees(self, active: Bools, slo_class: Ints, candidates: Candidates) -> None:
        """These trees [S] were drafted."""
        size, _, depth, _, chance = candidates
        learn_layers(active, slo_class, size, depth, chance, KEEP, self.seen, self.total)

    def learn_acceptance(self, expected: Floats, accepted: Bools, ran: Bools | None = None) -> None:
        """Drafts expected by layer [D], and the accepted ones [S, D]; of those that ran [S]."""
        ran = np.ones(len(accepted), np.bool_) if ran is None else ran
        learn_acceptance(
            ran, accepted, expected, KEEP, CALIBRATION_PRIOR, LARGEST_SCALE, self._expected,
            self._accepted, self.scale,
        )  # fmt: skip
