"""Controllers that decide at random, to find a plan that changes the text (none may)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol import Bools, Candidates, Controller, Plan, View


class Choice(NamedTuple):
    """One iteration's plan, the same for all slots or by slot."""

    depth: int | list[int]
    width: int | list[int]
    nodes: int | list[int]
    node_budget: int
    prefill_tokens: int
    max_running: int


def as_plan(choice: Choice, slots: int, margin: float = 1.0) -> Plan:
    """A plan for `slots` slots; lists repeat."""

    def spread(values: int | list[int]) -> np.ndarray:
        return np.resize(np.asarray(values), slots)

    return Plan(
        spread(choice.depth),
        spread(choice.width),
        spread(choice.nodes),
        np.full(slots, margin),
        choice.node_budget,
        choice.prefill_tokens,
        choice.max_running,
    )


class ListedPlans(Controller):
    """Goes through a list of plans and starts again at its end."""

    def __init__(self, choices: Sequence[Choice], margin: float = 1.0) -> None:
        self.choices, self.margin, self.at = choices, margin, 0

    def plan(self, view: View) -> Plan:
        self.at += 1
        choice = self.choices[(self.at - 1) % len(self.choices)]
        return as_plan(choice, view.limits.slots, self.margin)


class RandomPlans(Controller):
    """Draws everything anew in every iteration, also outside the limits."""

    def __init__(self, rng: np.random.Generator, margin: float = 1.0, idle: float = 0.2) -> None:
        self.rng, self.margin, self.idle = rng, margin, idle
        self.stretch = 0  # iterations of ordinary decoding still to come

    def plan(self, view: View) -> Plan:
        rng, limits = self.rng, view.limits
        if self.stretch == 0 and rng.random() < self.idle:
            self.stretch = int(rng.integers(1, 5))
        depth = rng.integers(-1, limits.max_depth + 3, limits.slots)
        if self.stretch:
            self.stretch -= 1
            depth[:] = 0
        return Plan(
            depth=depth,
            width=rng.integers(0, limits.max_width + 2, limits.slots),
            nodes=rng.integers(0, limits.max_nodes + 3, limits.slots),
            margin=np.full(limits.slots, self.margin),
            node_budget=int(rng.integers(-1, limits.slots * limits.max_nodes)),
            prefill_tokens=int(rng.integers(0, 30)),
            max_running=int(rng.integers(0, limits.slots + 2)),
        )


class RandomMasks(RandomPlans):
    """Also selects at random, not closed under parents, and stops drafting at random."""

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        return self.rng.random(candidates.parent.shape) < 0.7

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools | None:
        return self.rng.random(view.limits.slots) < 0.8
