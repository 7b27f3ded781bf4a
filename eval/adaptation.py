"""How a controller comes through a shift: settling, regret and what the transition cost.

Pure functions of two series over one regime, which begins at the change point: the controller's and
that of the switching oracle, a run on the same arrivals that changes to the regime's best fixed
setting at the change point (`eval.oracle`). The oracle carries its own backlog, so what no
controller could avoid is in neither figure. Definitions: ALGORITHMS.md §10 and
research/rl_toolkits.md §3.4; every constant is published with the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from engine.protocol import Bools, Floats
from eval.survival import Curve, kaplan_meier
from eval.windows import Series

LEAST_TOLERANCE = 0.05
SIGMAS = 2.0
HOLD_WINDOWS = 5
STEADY_SHARE = 0.25
"""Last part of a regime, which gives the oracle's level and noise; two windows at least."""


class Reference(NamedTuple):
    """Where the oracle is once its own transition is over."""

    level_tps: float
    tolerance: float
    """How far below the oracle still counts as settled, as a share; 1 or more: noise hides all."""


class Settling(NamedTuple):
    """Windows until a condition began to hold; until the regime's end where it never did."""

    windows: int
    settled: bool


class Adaptation(NamedTuple):
    """One controller through one shift. Tokens are SLO-valid ones; seconds are the engine's."""

    judged: bool
    """False: the oracle's noise hides all (`tolerance`); then it has not settled, and what hangs on
    when it settled is nan."""
    settled: bool
    """False of a judged one: right-censored, it had not settled when the regime ended."""
    settling_s: float
    settling_iterations: float
    excess_s: float
    """Time to the oracle's steady level beyond what the oracle took to it; a lower bound where
    `excess_censored`, nan where the oracle did not reach it either."""
    excess_censored: bool
    regret_tokens: float
    """Oracle's less the controller's tokens over the regime; what it makes up for is credited."""
    transient_regret_tokens: float
    """The part before it settled."""
    steady_regret_tokens: float
    """The part after."""
    regret_share: float
    """Regret over the oracle's tokens."""
    undershoot: float
    """Deepest fall below the oracle's steady level before it settled, as a share of the level."""
    debt_tokens: float
    """SLO debt: the oracle's lead in windows in which it leads; nothing is credited."""
    transition_violations: float
    """Missed requests that ended before it settled."""
    churn_per_s: float
    """Changes of action per second over the regime."""
    tolerance: float


def reference(oracle_tps: Floats) -> Reference:
    """Mean of the oracle's last quarter, and max(5 %, 2σ / mean) with σ over the same windows."""
    count = max(math.ceil(STEADY_SHARE * len(oracle_tps)), 2)
    tail = oracle_tps[-count:]
    level = float(tail.mean())
    if len(tail) < 2 or level <= 0:
        return Reference(level, LEAST_TOLERANCE)
    sigma = float(tail.std(ddof=1))
    return Reference(level, max(LEAST_TOLERANCE, SIGMAS * sigma / level))


def settling(holds: Bools, windows: int = HOLD_WINDOWS) -> Settling:
    """First window [W] from which a condition holds for so many windows, all within the regime."""
    run = 0
    for index, held in enumerate(holds.tolist()):
        run = run + 1 if held else 0
        if run == windows:
            return Settling(index + 1 - windows, True)
    return Settling(len(holds), False)


def adaptation(own: Series, oracle: Series) -> Adaptation:
    """What the shift at the start of both series cost. Raises ValueError for unlike windows."""
    same = (own.start_s, own.window_s, len(own.valid_tps))
    if same != (oracle.start_s, oracle.window_s, len(oracle.valid_tps)):
        raise ValueError(f"series over {same} and {oracle[:2]}; expected the same windows")
    window_s, mine, best = own.window_s, own.valid_tps, oracle.valid_tps
    level, tolerance = reference(best)
    judged = tolerance < 1.0  # else the bar is at 0 or below, and anybody is above it
    windows, settled = settling(mine >= (1.0 - tolerance) * best)
    rise, risen = settling(mine >= (1.0 - tolerance) * level)
    best_rise, best_risen = settling(best >= (1.0 - tolerance) * level)
    behind = (best - mine) * window_s
    total, early = float(behind.sum()), float(behind[:windows].sum())
    found = Adaptation(
        judged=judged,
        settled=settled,
        settling_s=windows * window_s,
        settling_iterations=float(own.iterations[:windows].sum()),
        excess_s=(rise - best_rise) * window_s if best_risen else math.nan,
        excess_censored=not risen,
        regret_tokens=total,
        transient_regret_tokens=early,
        steady_regret_tokens=total - early,
        regret_share=total / float(best.sum() * window_s) if best.sum() > 0 else math.nan,
        undershoot=_undershoot(mine[:windows], level),
        debt_tokens=float(np.maximum(behind, 0.0).sum()),
        transition_violations=float(own.violations[:windows].sum()),
        churn_per_s=float(own.churn_per_s.mean()),
        tolerance=tolerance,
    )
    if judged:
        return found
    return found._replace(
        settled=False,
        excess_censored=False,
        settling_s=math.nan,
        settling_iterations=math.nan,
        excess_s=math.nan,
        transient_regret_tokens=math.nan,
        steady_regret_tokens=math.nan,
        undershoot=math.nan,
        transition_violations=math.nan,
    )


class SettlingTimes(NamedTuple):
    """Passages through shifts put together: over seeds, shifts or both."""

    curve: Curve
    """Of the judged passages."""
    judged: int
    censored: int
    """Judged passages that had not settled when their regime ended."""
    unjudged: int
    """Passages that the oracle's noise hides; they are in no figure."""


def settling_times(passages: Iterable[Adaptation]) -> SettlingTimes:
    """Kaplan-Meier's curve of the judged passages, and how many were censored or not judged."""
    found = list(passages)
    judged = [passage for passage in found if passage.judged]
    curve = kaplan_meier([p.settling_s for p in judged], [p.settled for p in judged])
    censored = sum(not p.settled for p in judged)
    return SettlingTimes(curve, len(judged), censored, len(found) - len(judged))


def _undershoot(transient_tps: Floats, level_tps: float) -> float:
    if not len(transient_tps) or level_tps <= 0:
        return 0.0
    return max(0.0, 1.0 - float(transient_tps.min()) / level_tps)
