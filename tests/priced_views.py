"""Views whose prices can be added up by hand, for controllers that need a hardware profile."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from engine.protocol import Floats, Limits, Plan, View
from tests.test_features import make_view


class HandPrices:
    """10 s a step, 1 s a draft step and 0.1 s a row of it, and what `verified` [tokens] says."""

    def __init__(self, requests: int, verified: ArrayLike, catch_up_s: float = 0.0) -> None:
        """`catch_up_s` is added to the first draft step."""
        self.requests, self.verified = requests, np.asarray(verified, float)
        self.catch_up_s = catch_up_s

    def step_s(self, plan: Plan) -> float:
        """As it says above; plans are the same for everybody."""
        depth, width, nodes = (int(a[0]) for a in plan[:3])
        kept = min(nodes, width + (depth - 1) * width**2) if depth else 0
        draft_s = 0.0
        if depth:
            rows = self.requests * (1 + (depth - 1) * width)
            draft_s = depth + 0.1 * rows + self.catch_up_s
        return 10.0 + draft_s + float(self.verify_s(self.requests * (1 + kept)))

    def verify_s(self, tokens: ArrayLike) -> Floats:
        """Looked up."""
        found: Floats = self.verified[np.asarray(tokens, np.int64)]
        return found

    def node_budget(self, multiple: float) -> int:
        """Not asked."""
        raise AssertionError


def priced_view(
    requests: int, verified: ArrayLike, limits: Limits, catch_up_s: float = 0.0, **changes: Any
) -> View:
    """The first slots decode, with 100 tokens of context each and room for plenty more."""
    values: dict[str, Any] = {
        "active": np.arange(limits.slots) < requests,
        "context_tokens": np.full(limits.slots, 100),
        "kv_total_tokens": 10**6,
        "remaining_tokens": np.full(limits.slots, 99),
        "pricing": HandPrices(requests, verified, catch_up_s),
    }
    return make_view(np.random.default_rng(0), limits=limits, **{**values, **changes})
