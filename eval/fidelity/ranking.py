"""Whether replay ranks controllers as live does, wherever live shows a difference at all.

A block is one list of arrivals that every controller serves, on live and on replay. Differences are
taken within a block; live's have an interval over blocks (`eval.statistics`), and only where it
excludes zero is there a rank to agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from eval.fidelity.figures import Measured
from eval.statistics import Interval, paired_difference, verdict

Block = Mapping[str, Measured]
"""What each controller made of one block's arrivals."""


@dataclass(frozen=True)
class Metric:
    """What controllers are ranked by."""

    name: str
    unit: str
    of: Callable[[Measured], float]
    higher_is_better: bool


METRICS = (
    Metric("mean TPOT", "ms", lambda run: 1e3 * float(np.mean(run.tpots_s)), False),
    Metric("SLO goodput", "tokens/s", lambda run: run.goodput_tps, True),
)


@dataclass(frozen=True)
class Pair:
    """Two controllers by one metric."""

    metric: str
    unit: str
    first: str
    second: str
    live: Interval
    """Of first - second, over the blocks."""
    replay: float
    """Mean of the same difference."""
    says: str
    """What live shows, in words."""

    @property
    def holds(self) -> bool:
        """Whether replay has the sign that live shows, or live shows none."""
        return not self.live.excludes_zero or self.live.mean * self.replay > 0


def ranked(live: Sequence[Block], replay: Sequence[Block], rng: np.random.Generator) -> list[Pair]:
    """Every pair of controllers by every metric; blocks [B] in the same order on both.

    `rng` resamples. Raises ValueError for fewer than two blocks, which show no spread.
    """
    if len(live) < 2 or len(live) != len(replay):
        raise ValueError(
            f"{len(live)} blocks on live, {len(replay)} on replay; expected two or more on both"
        )
    pairs = []
    for metric in METRICS:
        for a, b in combinations(live[0], 2):
            ours, theirs = ([metric.of(block[name]) for block in live] for name in (a, b))
            difference = paired_difference(ours, theirs, rng)
            replayed = float(np.mean([metric.of(r[a]) - metric.of(r[b]) for r in replay]))
            says = verdict(a, b, difference, metric.name, metric.higher_is_better)
            pairs.append(Pair(metric.name, metric.unit, a, b, difference, replayed, says))
    return pairs
