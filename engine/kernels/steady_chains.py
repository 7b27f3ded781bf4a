"""What DSDE learns of each request from an iteration, and the chains that follow from it.

Rules and constants are `policies.dsde`'s, whose docstring says where they come from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from engine.kernels.variance_ratio import variance_ratio
from engine.protocol import Bools, Floats, Ints


class Courses(NamedTuple):
    """What is known of the request in each slot [S]."""

    history: Floats  # [S, N] divergences in nats, written round and round
    known: Ints  # divergences written
    last: Floats  # the newest of them
    steps: Ints  # draft steps while it calibrates itself
    drafted: Ints  # tokens drafted in the calibration
    most_accepted: Ints
    seen: Ints  # divergences of the calibration,
    total: Floats  # their sum
    largest: Floats  # and the largest, 0 before there is one
    longest: Ints  # SL_max, -1 while it calibrates itself


@njit(cache=True)
def note(
    here: Bools,
    proposed: Bools,
    accepted: Bools,
    divergence: Floats,
    calibration: int,
    stretch: float,
    most: int,
    courses: Courses,
) -> None:
    """An iteration's divergences [S] go into the histories, and calibrations come to their end.

    Of slots `here` [S] with positions `proposed` and `accepted` [S, D]; a divergence of NaN is
    none. In a calibration, which takes so many drafted tokens, chains double up to `most` as long
    as all of one is accepted.
    """
    for s in range(len(here)):
        drafted = kept = 0
        for d in range(proposed.shape[1]):
            drafted += proposed[s, d]
            kept += accepted[s, d]
        if not here[s] or drafted == 0:
            continue
        nats, told = divergence[s], not np.isnan(divergence[s])
        if told:
            courses.history[s, courses.known[s] % courses.history.shape[1]] = nats
            courses.last[s] = nats
            courses.known[s] += 1
        if courses.longest[s] >= 0:
            continue
        courses.drafted[s] += drafted
        courses.most_accepted[s] = max(courses.most_accepted[s], kept)
        if told:
            courses.seen[s] += 1
            courses.total[s] += nats
            courses.largest[s] = max(courses.largest[s], nats)
        if kept >= courses.steps[s]:
            courses.steps[s] = min(2 * courses.steps[s], most)
        if courses.drafted[s] >= calibration:
            share = 0.0
            if courses.largest[s] > 0.0:
                share = courses.total[s] / courses.seen[s] / courses.largest[s]
            bound = np.rint(courses.most_accepted[s] * (1.0 + stretch * share))
            courses.longest[s] = np.int64(bound)


@njit(cache=True)
def chains(
    here: Bools,
    courses: Courses,
    shortest: int,
    most: int,
    steepness: float,
    short: int,
    decay: float,
    depth: Ints,
) -> tuple[int, int]:
    """Write the chain's length, not capped, into `depth` [S] of slots `here` [S].

    Returns how many of them are done with calibrating, and the sum of their lengths. Bounds of the
    lengths are `shortest` and SL_max, which is held between `shortest` and `most`.
    """
    ratio = variance_ratio(courses.history, courses.known, short, decay)
    settled = total = 0
    for s in range(len(here)):
        if here[s] and courses.longest[s] < 0:
            depth[s] = courses.steps[s]
        elif here[s]:
            longest = min(max(courses.longest[s], shortest), most)
            # What no floating-point number holds is as good as very much.
            scale = math.expm1(min(steepness * courses.last[s], 700.0))
            kept = min(max(1.0 - scale * ratio[s], 0.0), 1.0)
            depth[s] = shortest + np.int64(np.ceil(kept * (longest - shortest)))
            settled += 1
            total += depth[s]
    return settled, total
