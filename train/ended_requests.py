"""What the requests that ended in a step amount to, by class: attainment is made of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.protocol import Floats
from engine.request import RequestRecord

ENDED = ("counted", "attained", "good_tokens")


def ended_by_class(records: Iterable[RequestRecord], classes: int) -> Floats:
    """[ENDED, C] of the requests with an objective: how many, how many met it, tokens in time."""
    found = np.zeros((len(ENDED), classes))
    for record in records:
        if record.has_objective:
            found[:, record.slo_class] += 1, record.attained, record.good_tokens
    return found
