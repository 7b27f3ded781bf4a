"""The test at the end: winner and defaults on arrivals that no trial saw, and what may be said.

A winner of many trials looks better than it is on the arrivals it was chosen by; only this test
speaks of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.protocol import Controller
from eval.significance import wilcoxon
from eval.statistics import Interval, interquartile_mean, paired_difference, several, verdict
from train.tuning.bench import Bench, Instance
from train.tuning.figures import Figure

LEVEL = 0.95


@dataclass(frozen=True)
class HeldOutGain:
    """Winner less defaults in one figure, over the held-out instances."""

    figure: str
    unit: str
    winner: list[float]
    defaults: list[float]
    gain: Interval
    """Interquartile mean of the paired differences; over all figures the intervals hold together
    at 95 %."""
    wilcoxon_p: float
    says: str


def compare(
    bench: Bench,
    winner: Controller,
    defaults: Controller,
    instances: Sequence[Instance],
    figures: Sequence[Figure],
    rng: np.random.Generator,
    announce: Callable[[int], None],
) -> list[HeldOutGain]:
    """Serve every instance with both, in turns of who is first; `announce` hears of runs done."""
    served: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for index, instance in enumerate(instances):
        for is_winner in (index % 2 == 0, index % 2 == 1):
            announce(len(served[True]) + len(served[False]))
            controller = winner if is_winner else defaults
            served[is_winner].append(bench.serve(controller, instance))
    names = winner.name, defaults.name
    if winner.name == defaults.name:  # two trainings of one algorithm
        names = f"the winner's {winner.name}", f"the defaults' {defaults.name}"
    return [
        gain_of(figure, names, served[True], served[False], instances, rng, len(figures))
        for figure in figures
    ]


def gain_of(
    figure: Figure,
    names: tuple[str, str],
    ours: Sequence[dict[str, float]],
    theirs: Sequence[dict[str, float]],
    instances: Sequence[Instance],
    rng: np.random.Generator,
    comparisons: int = 1,
) -> HeldOutGain:
    """What the runs of both, in the order of `instances`, show of a figure."""
    a, b = ([row[figure.name] for row in rows] for rows in (ours, theirs))
    traces = [instance.trace for instance in instances]
    strata = traces if len(set(traces)) > 1 else None
    level = several(LEVEL, comparisons)
    interval = paired_difference(a, b, rng, level, strata=strata, statistic=interquartile_mean)
    p_value = wilcoxon(np.subtract(a, b))
    says = verdict(*names, interval, figure.name, figure.higher_is_better)
    return HeldOutGain(figure.name, figure.unit, a, b, interval, p_value, says)


def told(found: HeldOutGain, figure: Figure) -> str:
    """Verdict, gain, interval and the levels of both in one line."""
    gain, digits = found.gain, figure.digits
    ends = f"[{gain.low:+.{digits}f}, {gain.high:+.{digits}f}]"
    ours, theirs = (float(interquartile_mean(np.array(v))) for v in (found.winner, found.defaults))
    return (
        f"{found.says}: {gain.mean:+.{digits}f} {ends} {figure.unit} over {gain.seeds} held-out "
        f"runs ({ours:.{digits}f} against {theirs:.{digits}f})"
    )
