"""An episode's disturbances into a replica's rows, and what power caps cost into the tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.protocol import Ints
from engine.replay.drift import episode_key
from engine.replay.fleet.state import FleetState
from engine.replay.power_levels import LEVELS, level_of
from engine.replay.recorded_request import RecordedRequest
from engine.workload.disturbances import (
    NEUTRAL,
    POWER_CAP,
    Disturbances,
    Schedule,
    stacked,
)

FIRST_POINTS = 16  # change points of a replica before the tables grow


def no_faults(replicas: int) -> Schedule:
    """Nothing goes wrong, with room for a few change points."""
    shape = replicas, FIRST_POINTS, len(NEUTRAL)
    points_s = np.full(shape[:2], np.inf)
    points_s[:, 0] = 0.0
    return Schedule(points_s, np.broadcast_to(NEUTRAL, shape).copy(), np.zeros(shape))


def with_faults(
    fleet: FleetState, r: int, wrong: Disturbances, requests: Iterable[RecordedRequest]
) -> FleetState:
    """The state in which replica r, fresh, meets these disturbances; `requests` as they came."""
    drifts, slows, caps = (wrong.has(kind) for kind in ("acceptance", "draft_time", "power_cap"))
    replica = fleet.replicas[r]
    replica["has_drift"], replica["has_slow_drafts"], replica["has_caps"] = drifts, slows, caps
    replica["has_pressure"] = presses = wrong.has("memory")
    if not (drifts or slows or caps or presses):
        return fleet
    if drifts:
        replica["drift_key"] = episode_key(requests)
    schedule = _with_room(fleet.wrong, len(wrong.points_s))
    fresh = stacked([wrong])
    count = fresh.points_s.shape[1]
    schedule.points_s[r], schedule.level[r], schedule.slope[r] = np.inf, NEUTRAL, 0.0
    for rows, row in zip(schedule, fresh, strict=True):
        rows[r, :count] = row[0]
    return fleet._replace(wrong=schedule)


def _with_room(schedule: Schedule, points: int) -> Schedule:
    """The schedule with room for so many change points a replica: itself where there is enough."""
    replicas, before, kinds = schedule.level.shape
    if points <= before:
        return schedule
    room = max(points, 2 * before)
    points_s = np.full((replicas, room), np.inf)
    level, slope = np.empty((replicas, room, kinds)), np.zeros((replicas, room, kinds))
    level[:] = NEUTRAL
    for rows, old in zip((points_s, level, slope), schedule, strict=True):
        rows[:, :before] = old
    return Schedule(points_s, level, slope)


def levels_needed(fleet: FleetState) -> Ints:
    """Levels of power caps that replicas may come to, ascending."""
    capped = fleet.replicas["has_caps"]
    points_s, level, slope = (rows[capped] for rows in fleet.wrong)
    if not capped.any():
        return np.zeros(0, np.int64)
    begins, slope = level[..., POWER_CAP], slope[..., POWER_CAP]
    # A ramp ends at a change point; what is constant, or padded, need not end.
    ends_s = np.concatenate([points_s[:, 1:], points_s[:, -1:]], axis=1)
    lasts_s = np.subtract(ends_s, points_s, out=np.zeros(slope.shape), where=slope != 0)
    ends = begins + slope * lasts_s
    is_needed = np.zeros(LEVELS + 2, np.bool_)
    low, high = np.minimum(begins, ends), np.maximum(begins, ends)
    for a, b in {*zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)}:
        # One more on either side of a ramp: its ends are rounded as all numbers are.
        aside = int(b > a)
        is_needed[max(level_of(a) - aside, 0) : level_of(b) + aside + 1] = True
    return np.flatnonzero(is_needed[: LEVELS + 1])
