"""How fast the machine was while live served: passes of known sizes, against a profile.

A machine that others share is now faster and now slower, by more than the bars. So the same points
are timed before, between and after the live runs, and every round is set beside the profile: what
they lie apart is the machine's own unrest, which no model of it can follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from engine.prefilling import Chunk
from engine.profile.cost_model import PassCost
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.measure import Step, Timed

Pairs = list[tuple[float, float]]
STAGES = ("prefill", "draft", "verify", "host")


class Drift(NamedTuple):
    """One stage over all rounds: measured time over the profile's."""

    stage: str
    rounds: tuple[float, ...]
    """Median of each round's points: 1.1 where the machine was a tenth slower than its profile."""
    totals: tuple[float, ...]
    """All that a round timed over all that was predicted of it: more than its median where the
    machine was interrupted, which a live run pays for and a profile of medians leaves out."""

    @property
    def middle(self) -> float:
        """Median round."""
        return float(np.median(self.rounds))

    @property
    def scale(self) -> float:
        """What the stage took in these minutes, over its profile: the middle round's total."""
        return float(np.median(self.totals))

    def __str__(self) -> str:
        low, high = min(self.rounds), max(self.rounds)
        within = f"{low:.2f} to {high:.2f}, with interruptions {self.scale:.2f}"
        return f"{self.stage} × {self.middle:.2f} ({within})"


def drifts(rounds: Sequence[Timed], profile: HardwareProfile) -> list[Drift]:
    """Every stage over the rounds [R]."""
    by_round = [_times(timed, profile) for timed in rounds]
    return [_drift(stage, [times[stage] for times in by_round]) for stage in STAGES]


def calibrated(profile: HardwareProfile, found: Sequence[Drift]) -> HardwareProfile:
    """The profile with every stage as slow as it was in the rounds, interruptions included.

    One factor a stage, of passes that nobody compares: what is left of an error is the model's.
    """
    scale = {d.stage: d.scale if math.isfinite(d.scale) else 1.0 for d in found}
    return replace(
        profile,
        prefill=_times_as_long(profile.prefill, scale["prefill"]),
        draft_first=_times_as_long(profile.draft_first, scale["draft"]),
        draft_next=_times_as_long(profile.draft_next, scale["draft"]),
        verify=_times_as_long(profile.verify, scale["verify"]),
        host=_times_as_long(profile.host, scale["host"]),
    )


def _times_as_long(cost: PassCost, factor: float) -> PassCost:
    curve = cost.curve
    return PassCost(
        curve=replace(
            curve,
            base_s=factor * curve.base_s,
            slopes_s=tuple(factor * slope for slope in curve.slopes_s),
            jumps_s=tuple(factor * jump for jump in curve.jumps_s),
        ),
        kv_token_s=factor * cost.kv_token_s,
        attended_s=factor * cost.attended_s,
        request_s=factor * cost.request_s,
    )


def _drift(stage: str, by_round: Sequence[Pairs]) -> Drift:
    return Drift(
        stage,
        tuple(
            float(np.median([m / p for m, p in pairs])) if pairs else math.nan for pairs in by_round
        ),
        tuple(
            sum(m for m, _ in pairs) / sum(p for _, p in pairs) if pairs else math.nan
            for pairs in by_round
        ),
    )


def _times(timed: Timed, profile: HardwareProfile) -> dict[str, Pairs]:
    """Measured and predicted seconds of every pass, by stage."""
    found: dict[str, Pairs] = {stage: [] for stage in STAGES}
    for step in timed.steps:
        load = step.tokens, step.kv_tokens, step.requests
        found["verify"].append((step.verify_s, profile.verify.at(*load)))
        found["host"].append((step.host_s, profile.host.at(*load)))
        if step.first_rows:
            found["draft"].append((step.draft_s, _draft_s(step, profile)))
    found["prefill"] = [(chunk.seconds, _chunk_s(chunk, profile)) for chunk in timed.chunks]
    return found


def _draft_s(step: Step, profile: HardwareProfile) -> float:
    rows = [step.first_rows, *[step.beam_rows] * (step.shape.depth - 1)]
    return profile.draft_s(rows, step.kv_tokens, step.requests)


def _chunk_s(chunk: Chunk, profile: HardwareProfile) -> float:
    return profile.prefill.at(chunk.tokens, chunk.context_tokens, float(chunk.ends_prompt))
