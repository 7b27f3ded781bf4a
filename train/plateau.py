"""When to give up: so many judgements in a row, none of them better than the best before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class Plateau:
    """Remembers the best score, when it was reached, and how many in a row were no better."""

    def __init__(self, patience: int | None) -> None:
        """`patience` is how many in a row are enough; None: none ever are."""
        self.patience = patience
        self.best, self.best_at, self.without_gain = -math.inf, 0, 0

    def improves(self, score: float, at: int) -> bool:
        """Whether a score, at that decision or epoch, is better than all before; nan never is."""
        if score > self.best:
            self.best, self.best_at, self.without_gain = score, at, 0
            return True
        self.without_gain += 1
        return False

    @property
    def is_reached(self) -> bool:
        """Whether it is time to give up."""
        return self.patience is not None and self.without_gain >= self.patience

    def state(self) -> dict[str, float]:
        """All that is remembered."""
        return {
            "best": self.best,
            "best_at": self.best_at,
            "without_gain": self.without_gain,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        self.best = float(state.get("best", -math.inf))
        self.best_at = int(state.get("best_at", 0))
        self.without_gain = int(state.get("without_gain", 0))
