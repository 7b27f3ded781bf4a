"""A policy that has learned nothing: tiers of the learners' own action table, drawn at random."""

from __future__ import annotations

import numpy as np

from engine.protocol import Controller, Limits, Plan, View
from policies.actions import HeldPlan, sized_tiers

SPEC = f"{__name__}:RandomTiers"
"""As `registry.make` takes it."""


class RandomTiers(Controller):
    """Every `hold` iterations another tier of every dimension, all equally likely.

    A seed gives the same draws in every episode.
    """

    name = "random tiers"

    def __init__(self, seed: int = 0, hold: int = 4) -> None:
        """`hold` in iterations; a learned controller's by default."""
        self.seed, self.hold = seed, hold
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self._rng = np.random.default_rng(self.seed)
        self._actor: HeldPlan | None = None
        self._held = 0

    def plan(self, view: View) -> Plan:
        """Draw where a decision is due, else keep the last."""
        if self._actor is None:
            self._actor = sized_tiers(view.class_names).actor()
        if self._held == 0:
            self._actor.decide(self._rng.integers(self._actor.table.nvec))
        self._held = (self._held + 1) % self.hold
        return self._actor.plan(view)
