"""Service classes: who is promised what.

Objectives are ratios to this machine's unloaded time per token, since milliseconds mean nothing
across machines. `owner` and `share` leave room for rights and quotas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats


@dataclass(frozen=True)
class SLOClass:
    """One class of requests and its objectives; inf means that none is set."""

    name: str
    tpot_ratio: float
    """Mean time per output token, in multiples of the unloaded time per token."""
    ttft_ratio: float = float("inf")
    """Time to first token, likewise in multiples of the unloaded time per token."""
    owner: str = ""
    share: float = 1.0
    completion_ratio: float = float("inf")
    """Arrival to last token, in the same unit."""
    queue_age_ratio: float = float("inf")
    """Longest wait for a slot, in the same unit."""
    priority: int = 0
    """For the order `priority`: the higher number goes first."""

    def __post_init__(self) -> None:
        if not (self.tpot_ratio > 0 and self.ttft_ratio > 0):
            raise UserError(
                f"class {self.name!r}: objectives are {self.tpot_ratio} and {self.ttft_ratio}; "
                "expected positive multiples of the unloaded time per token"
            )
        for name in ("completion_ratio", "queue_age_ratio"):
            if not getattr(self, name) > 0:
                raise UserError(
                    f"class {self.name!r}: {name} is {getattr(self, name)}; expected a positive "
                    "multiple of the unloaded time per token, or inf for none"
                )


@dataclass(frozen=True)
class ClassTable:
    """The classes of a deployment, in a fixed order that indexes every per-class array."""

    classes: tuple[SLOClass, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in order."""
        return tuple(c.name for c in self.classes)

    def tpot_objectives_s(self, unloaded_tpot_s: float) -> Floats:
        """[C] seconds per token."""
        return np.array([c.tpot_ratio * unloaded_tpot_s for c in self.classes])

    def ttft_objectives_s(self, unloaded_tpot_s: float) -> Floats:
        """[C] seconds to the first token."""
        return np.array([c.ttft_ratio * unloaded_tpot_s for c in self.classes])

    def completion_objectives_s(self, unloaded_tpot_s: float) -> Floats:
        """[C] seconds from arrival to the last token."""
        return np.array([c.completion_ratio * unloaded_tpot_s for c in self.classes])

    def queue_age_objectives_s(self, unloaded_tpot_s: float) -> Floats:
        """[C] seconds that a request may wait for a slot."""
        return np.array([c.queue_age_ratio * unloaded_tpot_s for c in self.classes])

    def next_looser(self, index: int) -> int:
        """The class with the next larger TPOT objective; -1 when none is looser."""
        own = self.classes[index].tpot_ratio
        looser = [i for i, c in enumerate(self.classes) if c.tpot_ratio > own]
        return min(looser, key=lambda i: self.classes[i].tpot_ratio, default=-1)


# AdaServe (EuroSys 2026, section 6): coding at 1.2 x the unloaded latency, chat and summarization
# at 50 and 150 ms where unloaded decoding took about 30 ms.
DEFAULT_CLASSES = ClassTable(
    (SLOClass("coding", 1.2), SLOClass("chat", 1.7), SLOClass("summarization", 5.0))
)
