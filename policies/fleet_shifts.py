"""`policies.shifts` for every replica of a fleet: the same two rules, compiled, on arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from engine.kernels.inner import INNER
from engine.protocol import Floats, Ints
from engine.replay.fleet.state import FleetState
from policies import shifts as rules
from policies.shifts import MOST_AT_ONCE, SPAN_TOKEN_TIMES

arrivals_rule = njit(**INNER, error_model="numpy")(rules.next_arrivals)
acceptance_rule = njit(**INNER, error_model="numpy")(rules.next_acceptance)

WATCHED = np.dtype(
    [
        *((name, "f8") for name in ("changed_s", "rate_hz", "queued", "unseen")),
        *((name, "f8") for name in ("seconds", "total", "more", "fewer")),  # of `next_arrivals`
        *((name, "f8") for name in ("mean", "seen", "better", "worse")),  # of `next_acceptance`
    ],
    align=True,
)
"""What `policies.shifts.Shifts` remembers of a class."""


class FleetShifts(NamedTuple):
    """What is remembered of the views of every replica's episode."""

    classes: Any  # [R, C] WATCHED
    request: Ints  # [R, S] who decoded in each slot at the last look, -1 for nobody
    looked_s: Floats  # [R] clock of the last look, -1 before the first


def new_shifts(replicas: int, classes: int, slots: int) -> FleetShifts:
    """Nothing was seen of anybody."""
    return FleetShifts(
        np.zeros((replicas, classes), WATCHED),
        np.full((replicas, slots), -1),
        np.full(replicas, -1.0),
    )


def forget(shifts: FleetShifts, replica: int) -> None:
    """Another episode begins on the replica."""
    shifts.classes[replica] = np.zeros((), WATCHED)
    shifts.request[replica] = -1
    shifts.looked_s[replica] = -1.0


@njit(**INNER, error_model="numpy")
def look(
    r: int,
    fleet: FleetState,
    shifts: FleetShifts,
    acceptance: Floats,
    evidence: Floats,
    since: Floats,
    prefilling: int,
    unloaded_tpot_s: float,
    newcomers: Ints,
) -> None:
    """What replica r shows now; of position 1, by class [C], as `policies.shifts.Shifts.look`.

    `newcomers` [C] is scratch.
    """
    clock_s, request = fleet.replicas[r].clock_s, shifts.request[r]
    elapsed_s, is_first = clock_s - shifts.looked_s[r], shifts.looked_s[r] < 0.0
    if elapsed_s <= 0.0:
        return
    newcomers[:] = 0
    for s in range(len(request)):
        slot = fleet.slots[r, s]
        now = slot.request if slot.decoding else -1
        if slot.decoding and now != request[s]:
            newcomers[slot.slo_class] += 1
        request[s] = now
    look_by_class(
        shifts.classes[r], is_first, clock_s, elapsed_s, fleet.replicas[r].iteration_s,
        fleet.queued[r], newcomers, acceptance, evidence, since, prefilling, unloaded_tpot_s,
    )  # fmt: skip
    shifts.looked_s[r] = clock_s


@njit(**INNER, error_model="numpy")
def look_by_class(
    classes: Any,
    is_first: bool,
    clock_s: float,
    elapsed_s: float,
    iteration_s: float,
    queued: Ints,
    newcomers: Ints,
    acceptance: Floats,
    evidence: Floats,
    since: Floats,
    prefilling: int,
    unloaded_tpot_s: float,
) -> None:
    """Let `classes` [C] remember who came and what was accepted since the last look.

    Of each class: requests that wait, and those that decode and did not at the last look.
    """
    span_s = SPAN_TOKEN_TIMES * unloaded_tpot_s
    iterations = MOST_AT_ONCE
    if iteration_s * MOST_AT_ONCE > elapsed_s:
        iterations = elapsed_s / iteration_s
    for c in range(len(classes)):
        of, waiting = classes[c], float(queued[c])
        if is_first:
            of.changed_s = clock_s
        else:
            arrived = waiting - of.queued + newcomers[c] + of.unseen
            of.unseen = max(min(arrived, 0.0), -float(prefilling))
            arrived = max(arrived, 0.0)
            of.rate_hz = (of.rate_hz * span_s + arrived) / (elapsed_s + span_s)
            of.seconds, of.total, of.more, of.fewer, has_changed = arrivals_rule(
                arrived, elapsed_s, of.seconds, of.total, of.more, of.fewer
            )
            if has_changed:
                of.changed_s = clock_s
            if since[c] == 0.0:
                weight = evidence[c] * iterations
                of.mean, of.seen, of.better, of.worse, has_changed = acceptance_rule(
                    acceptance[c], weight, of.mean, of.seen, of.better, of.worse
                )
                if has_changed:
                    of.changed_s = clock_s
        of.queued = waiting
