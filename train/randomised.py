"""Domain randomisation: what goes wrong in training beside what the workload draws itself.

Every episode draws its own from its generator, aside from its arrivals (`engine.workload`), so a
seed stays an episode. Two kinds hold all of an episode, as on another machine at another load: the
factor on the arrival rate, and the profile's: factors on the time of a draft step and, on replay, a
cap on power, which slows every stage. The others come and go: acceptance, draft time, memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from engine.workload import WorkloadConfig
from engine.workload.disturbances import LATEST_S, DrawnDisturbance

LOAD = (0.8, 1.2)
"""Factor on the arrival rate, in every episode."""
PROFILE_DRAFT_TIME = (0.6, 1.8)
"""Factor on the time of a draft step, in every second episode."""
PROFILE_POWER = (0.6, 1.0)
"""Cap as a share of the device's highest power, in every third episode."""
ACCEPTANCE = (0.6, 1.2)
"""Factor on the probability that a draft is accepted, in every second episode, for a while."""
DRAFT_TIME = (1.2, 3.0)
"""Factor on the time of a draft step, in every third episode, for a while."""
MEMORY = (0.2, 0.7)
"""Share of the KV pages withdrawn, in every third episode, for a while."""
TRACE_S = 600.0
"""Disturbances of a trace without a stated end begin within its first part."""


def randomised(
    work: WorkloadConfig, backend: Literal["live", "replay"], memory: bool = True
) -> WorkloadConfig:
    """The workload with these drawn beside its own; without memory where the server has no such.

    Live networks are neither faster nor better than they are, and no power is capped there.
    """
    is_replay = backend == "replay"
    lasts_s = work.duration_s if math.isfinite(work.duration_s) else TRACE_S
    ramp_s = 0.02 * lasts_s

    def always(kind: str, value: tuple[float, float], probability: float) -> DrawnDisturbance:
        everything = (LATEST_S, LATEST_S)
        return DrawnDisturbance(kind, (0.0, 0.0), everything, value, probability=probability)

    def for_a_while(
        kind: str, value: tuple[float, float], probability: float, ramp_s: float = ramp_s
    ) -> DrawnDisturbance:
        begins, lasts = (0.0, 0.8 * lasts_s), (0.1 * lasts_s, 0.5 * lasts_s)
        return DrawnDisturbance(kind, begins, lasts, value, ramp_s, probability=probability)

    profile_draft_time, acceptance = PROFILE_DRAFT_TIME, ACCEPTANCE
    if not is_replay:
        profile_draft_time = max(profile_draft_time[0], 1.0), profile_draft_time[1]
        acceptance = acceptance[0], min(acceptance[1], 1.0)
    drawn = [
        always("arrival_rate", LOAD, 1.0),
        always("draft_time", profile_draft_time, 1 / 2),
        for_a_while("acceptance", acceptance, 1 / 2),
        for_a_while("draft_time", DRAFT_TIME, 1 / 3),
    ]
    if is_replay:
        drawn.append(always("power_cap", PROFILE_POWER, 1 / 3))
    if memory:  # pages are withdrawn at once
        drawn.append(for_a_while("memory", MEMORY, 1 / 3, ramp_s=0.0))
    return replace(work, drawn_disturbances=(*work.drawn_disturbances, *drawn))
