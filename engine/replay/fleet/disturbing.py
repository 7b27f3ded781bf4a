"""What goes wrong on a replica, read at its own clock: the fleet's `engine.replay.effects`.

A replica whose episode has no disturbance pays for two looks at its flags a pass. Callers hand
numbers that may be constants over as `np.int64`: Numba would compile a kernel for each by itself.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.inner import INNER
from engine.replay.drift import chance, comes_right, conditional
from engine.replay.fleet.costs import DRAFT_FIRST, DRAFT_NEXT, Whole, cost_s
from engine.replay.fleet.state import Book, FleetState, Record
from engine.replay.fleet.trees import is_drafted
from engine.replay.power_levels import LEVELS, level_of
from engine.replay.recording import ROOT
from engine.workload.disturbance_kernel import seek, value_at
from engine.workload.disturbances import DRAFT_TIME, POWER_CAP


@njit(**INNER)
def value_now(r: Whole, kind: np.int64, fleet: FleetState) -> float:
    """The value of a kind, of COLUMNS, at replica r's clock."""
    replica, clock_s = fleet.replicas[r], fleet.replicas[r].clock_s
    replica.change_point = seek(fleet.wrong, r, clock_s, replica.change_point)
    return value_at(fleet.wrong, r, clock_s, replica.change_point, kind)


@njit(**INNER)
def do_pass(
    r: Whole,
    kind: np.int64,
    tokens: np.int64,
    kv_tokens: np.int64,
    requests: np.int64,
    fleet: FleetState,
) -> None:
    """One pass of replica r, slowed by what holds at its clock.

    It goes on the replica's stopwatch, not yet on its clock.
    """
    replica, costs = fleet.replicas[r], fleet.costs
    curve_s, terms = costs.curve_s[kind, tokens], costs.terms[kind]
    watts, factor = costs.pass_watts[kind, tokens], 1.0
    if replica.has_caps:
        row = costs.levels.row[level_of(value_now(r, np.int64(POWER_CAP), fleet))]
        curve_s, terms = costs.levels.curve_s[row, kind, tokens], costs.levels.terms[row, kind]
        watts = costs.levels.pass_watts[row, kind, tokens]
    if replica.has_slow_drafts and kind in (DRAFT_FIRST, DRAFT_NEXT):
        factor = value_now(r, np.int64(DRAFT_TIME), fleet)
    seconds = factor * cost_s(curve_s, terms, tokens, kv_tokens, requests)
    replica.work_s += seconds
    replica.joules += seconds * watts


@njit(**INNER)
def cap_watts_now(r: int, fleet: FleetState) -> float:
    """The power cap that replica r's device keeps to at its clock, inf for none."""
    constant_watts, peak_watts = fleet.rules.power_cap_watts, fleet.rules.peak_watts
    if not fleet.replicas[r].has_caps:
        return constant_watts
    level = level_of(value_now(r, np.int64(POWER_CAP), fleet))
    return min(peak_watts * level / LEVELS if level < LEVELS else np.inf, constant_watts)


@njit(**INNER)
def drift_path(slot: Record, acceptance: float, key: np.uint64, book: Book) -> None:
    """Write how much of the slot's tree is accepted under drift, as `engine.replay.drift` has it.

    `path` must say how much is without.
    """
    if acceptance > 1.0:
        slot.path = _mended(slot, acceptance, key, book)
        return
    for depth in range(1, slot.path + 1):
        if chance(key, slot.text, slot.emitted - 1, depth) >= acceptance:
            slot.path = depth - 1
            return


@njit(**INNER)
def _mended(slot: Record, acceptance: float, key: np.uint64, book: Book) -> int:
    """Length of the target's path through what is kept, mended where it breaks."""
    first, end = book.first_node[slot.place], book.first_node[slot.place + 1]
    above, path = ROOT, 0
    while path < slot.depth:
        wanted = book.tokens[slot.following + path]
        best = right = -1
        drafted = best_rank = right_rank = 0
        for i in range(first, end):
            if not is_drafted(book, i, slot.depth, slot.width):
                continue
            drafted += 1
            if book.parent[i] != above:
                continue
            if best < 0:  # the likeliest stands first
                best, best_rank = i - first, drafted
            if book.token[i] == wanted:
                right, right_rank = i - first, drafted
        if right < 0 and best >= 0:
            parent = -1 if above == ROOT else above
            given_parent = conditional(book.probability, first, best, np.int64(parent))
            number = chance(key, slot.text, slot.emitted - 1, path + 1)
            if comes_right(number, acceptance, given_parent):
                right, right_rank = best, best_rank
        if right < 0 or right_rank > slot.nodes:
            return path
        path += 1
        above = right
    return path
