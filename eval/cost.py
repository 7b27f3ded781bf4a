"""What serving cost: time of the device, energy, and candidate work that came to nothing.

One definition each (ALGORITHMS.md §10), over all iterations of a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.protocol import Outcome


@dataclass
class Cost:
    """Sums over the iterations of a run; ratios are nan where there is nothing to divide by."""

    iterations: int = 0
    emitted_tokens: int = 0
    """By decoding iterations; a request's first token comes from its prompt."""
    decoded_requests: int = 0
    """Requests that decoded, counted once an iteration."""
    busy_s: float = 0.0
    """Time of the iterations, prompts included: what the device was there for. Not in it: gaps with
    nothing to serve."""
    controller_s: float = 0.0
    joules: float = 0.0
    drafted_nodes: int = 0
    verified_drafts: int = 0
    """Nodes verified, the roots not counted."""
    accepted_drafts: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count an iteration."""
        ran = int(outcome.ran.sum())
        self.iterations += 1
        self.emitted_tokens += int(outcome.accepted_length.sum())
        self.decoded_requests += ran
        self.busy_s += outcome.iteration_s
        self.controller_s += outcome.controller_s
        self.joules += outcome.energy_joules
        self.drafted_nodes += int(outcome.drafted.sum())
        self.verified_drafts += int(outcome.verified.sum()) - ran
        self.accepted_drafts += int(outcome.accepted.sum())

    @property
    def rejected_nodes(self) -> int:
        """Verified in vain: |T| - 1 - accepted drafts, over all trees."""
        return self.verified_drafts - self.accepted_drafts

    @property
    def wasted_nodes(self) -> int:
        """Waste: verified in vain, plus drafted and never verified."""
        return self.rejected_nodes + self.drafted_nodes - self.verified_drafts

    @property
    def waste_share(self) -> float:
        """Waste over all that was drafted."""
        return _ratio(self.wasted_nodes, self.drafted_nodes)

    @property
    def tokens_per_iteration(self) -> float:
        """Tokens that a decoding request got from an iteration it took part in, on average."""
        return _ratio(self.emitted_tokens, self.decoded_requests)

    @property
    def decision_s(self) -> float:
        """Mean time that the controller took in an iteration; 0 without one."""
        return self.controller_s / self.iterations if self.iterations else 0.0

    def tokens_per_device_s(self, tokens: int) -> float:
        """`tokens` per second that the device was busy; of SLO-valid tokens, what it is worth."""
        return _ratio(tokens, self.busy_s)

    def joules_per(self, tokens: int) -> float:
        """Energy over `tokens`, emitted or SLO-valid ones."""
        return _ratio(self.joules, tokens)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan
