"""What a controller declares of its constants so that they can be tuned: a range for each.

A controller declares them as a class attribute, a tuple of ranges where the parameter is a tuple:

    TUNABLE: ClassVar[Declared] = {
        "weight": Tunable(0.0, 1.0),
        "depth": (Tunable(0, 4, whole=True), Tunable(1, 8, whole=True)),
    }

Every combination within the ranges must be one that the constructor takes, and the defaults lie
within them. How ranges are searched is the tuner's (`python tune.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import NamedTuple


class Tunable(NamedTuple):
    """A range, both ends included."""

    low: float
    high: float
    log: bool = False
    """Search orders of magnitude alike."""
    whole: bool = False
    """Whole numbers only."""
    lossy: bool = False
    """Trades the target's text for speed, so it is searched only where that is counted."""


Declared = Mapping[str, Tunable | tuple[Tunable, ...]]
"""Ranges by parameter of the constructor."""


def declared(kind: type) -> dict[str, Tunable | tuple[Tunable, ...]]:
    """What `kind` declares of the parameters that its own constructor takes; empty for nothing.

    A subclass that takes fewer than its base, as one without a margin does, inherits the rest.
    """
    taken = inspect.signature(kind).parameters
    ranges: Declared = getattr(kind, "TUNABLE", {})
    return {name: found for name, found in ranges.items() if name in taken}
