"""The disturbances that a live engine can act on in its drafter: slower steps, worse drafts.

Turns the table of an episode into the schedule of `engine.drafters.scheduled`. A live drafter
cannot be made faster or better than it is: factors on its time below 1 and on acceptance above 1
are left to replay.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from engine.drafters.protocol import Drafter
from engine.drafters.scheduled import Fault, Scheduled
from engine.workload.disturbances import ACCEPTANCE, DRAFT_TIME, Disturbances

RAMP_STEPS = 20  # of a ramp, which a live drafter climbs in stairs


def drafter_faults(disturbances: Disturbances) -> tuple[Fault, ...]:
    """The schedule in seconds of the engine's clock, end to end, nothing where nothing is wrong."""
    points_s = disturbances.points_s.tolist()
    faults: list[Fault] = []
    for i, (begin_s, end_s) in enumerate(pairwise([*points_s, float("inf")])):
        is_ramp = bool(disturbances.slope[i, [ACCEPTANCE, DRAFT_TIME]].any())
        edges_s = [begin_s, end_s]
        if is_ramp:
            edges_s = np.linspace(begin_s, end_s, RAMP_STEPS + 1).tolist()
        for at_s, until_s in pairwise(edges_s):
            seen_s = (at_s + until_s) / 2 if is_ramp else at_s
            slowdown = max(disturbances.value("draft_time", seen_s), 1.0)
            degraded = max(1.0 - disturbances.value("acceptance", seen_s), 0.0)
            if slowdown > 1.0 or degraded > 0.0:
                faults.append(Fault(at_s, until_s, slowdown, degraded))
    return tuple(faults)


def disturbed(
    drafter: Drafter,
    disturbances: Disturbances,
    vocab: int,
    rng: np.random.Generator,
    now: Callable[[], float],
) -> Drafter:
    """`drafter` under the episode's faults; itself where there are none.

    `now` is `lambda: engine.clock_s`, `vocab` the target's number of tokens.
    """
    faults = drafter_faults(disturbances)
    return Scheduled(drafter, faults, vocab, rng, now) if faults else drafter
