"""A change as all seeds came through it together: the figures that hang on when it settled.

Windows of one seed hold so few requests that the oracle's own noise, which is the tolerance, would
call anybody settled. So the courses of all seeds are averaged, the controller's and the oracle's
over the same arrivals, and the mean course is judged by `eval.adaptation`; intervals resample the
seeds. Of several changes the settling times are put together by Kaplan-Meier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eval.adaptation import Adaptation, adaptation, settling_times
from eval.parts import figure
from eval.statistics import Interval, interval_of
from eval.windows import Series

DRAWS = 400
LEVEL = 0.95
TITLES = {
    "settling_s": "settled after, median, s",
    "restricted_s": "settled after, mean, s, not settled counting as the shortest stretch",
    "not_settled": "changes after which it had not settled before the next, %",
    "excess_s": "excess time over the oracle, s",
    "transient": "regret before it settled, % of the oracle's tokens",
    "steady": "regret after it settled, % of the oracle's tokens",
    "debt": "SLO debt, % of the oracle's tokens",
    "undershoot": "undershoot, % of the oracle's level",
    "violations": "misses in transition, a change and seed",
}
BOUNDS = {
    "settling_s": (0.0, math.inf),
    "restricted_s": (0.0, math.inf),
    "not_settled": (0.0, 100.0),
    "excess_s": (-math.inf, math.inf),
    "transient": (-math.inf, 100.0),
    "steady": (-math.inf, 100.0),
    "debt": (0.0, 100.0),
    "undershoot": (0.0, 100.0),
    "violations": (0.0, math.inf),
}
"""How far a figure can go, and so its interval."""
UNBOUNDED = ("settling_s",)
"""A median may never be reached: bounds are entries of the resample, and none is widened."""


class Passage(NamedTuple):
    """One change under the seeds [n] that both came through: a series of either for each."""

    seeds: Sequence[int]
    own: Sequence[Series]
    oracle: Sequence[Series]

    @property
    def lasts_s(self) -> float:
        """Until the next change."""
        return self.own[0].window_s * len(self.own[0].valid_tps)


def together(passage: Passage, seeds: Sequence[int] | None = None) -> Adaptation:
    """The mean course through the change over `seeds`, places that may repeat; None: all."""
    chosen = range(len(passage.own)) if seeds is None else seeds
    own, oracle = ([part[i] for i in chosen] for part in (passage.own, passage.oracle))
    return adaptation(_mean(own), _mean(oracle))


def figures_of(passages: Sequence[Passage]) -> dict[str, Any]:
    """The figures of TITLES with intervals, and how many changes there were of each kind.

    Of the seeds that came through all passages; they are resampled together. One seed shows no
    interval.
    """
    passages = _common(passages)
    if not passages:
        nothing = figure(Interval(math.nan, math.nan, math.nan, 0))
        return {**dict.fromkeys(TITLES, nothing), "changes": 0, "unjudged": 0, "censored": 0}
    found = [together(passage) for passage in passages]
    best = _oracle_tokens(passages)
    estimate = _figures(found, best, passages)
    seeds = len(passages[0].seeds)
    drawn: dict[str, list[float]] = {name: [] for name in TITLES}
    rng = np.random.default_rng(0)
    for _ in range(DRAWS if seeds > 1 else 0):
        chosen = rng.integers(seeds, size=seeds).tolist()
        again = [together(passage, chosen) for passage in passages]
        values = _figures(again, _oracle_tokens(passages, chosen), passages)
        for name, value in values.items():
            drawn[name].append(value)
    times = settling_times(found)
    return {
        **{
            name: figure(_interval(name, estimate[name], drawn[name], seeds), *BOUNDS[name])
            for name in TITLES
        },
        "limit_s": min(passage.lasts_s for passage in passages),
        "changes": len(passages),
        "unjudged": times.unjudged,
        "censored": times.censored,
        "excess_censored": sum(of.excess_censored for of in found),
    }


def _common(passages: Sequence[Passage]) -> list[Passage]:
    """The passages under the seeds that all have, in one order; none where they share no seed."""
    shared = sorted(set.intersection(*(set(of.seeds) for of in passages))) if passages else []
    found = []
    for of in passages if shared else ():
        places = [of.seeds.index(seed) for seed in shared]
        found.append(Passage(shared, [of.own[i] for i in places], [of.oracle[i] for i in places]))
    return found


def _figures(
    found: Sequence[Adaptation], oracle_tokens: Sequence[float], passages: Sequence[Passage]
) -> dict[str, float]:
    """Of the judged changes; nan where none is."""
    judged = [(of, best) for of, best in zip(found, oracle_tokens, strict=True) if of.judged]
    if not judged:
        return dict.fromkeys(TITLES, math.nan)
    best = sum(tokens for _, tokens in judged)
    times = settling_times(of for of, _ in judged)
    excess = [of.excess_s for of, _ in judged if not math.isnan(of.excess_s)]

    def share(name: str) -> float:
        total = sum(getattr(of, name) for of, _ in judged)
        return 100.0 * total / best if best > 0 else math.nan

    return {
        "settling_s": times.curve.median,
        "restricted_s": times.curve.restricted_mean(min(p.lasts_s for p in passages)),
        "not_settled": 100.0 * times.censored / times.judged,
        "excess_s": float(np.mean(excess)) if excess else math.nan,
        "transient": share("transient_regret_tokens"),
        "steady": share("steady_regret_tokens"),
        "debt": share("debt_tokens"),
        "undershoot": 100.0 * float(np.mean([of.undershoot for of, _ in judged])),
        "violations": float(np.mean([of.transition_violations for of, _ in judged])),
    }


def _interval(name: str, estimate: float, drawn: Sequence[float], seeds: int) -> Interval:
    known = np.array([value for value in drawn if not math.isnan(value)], np.float64)
    if len(known) == 0 or math.isnan(estimate):
        return Interval(estimate, -math.inf, math.inf, seeds)
    if name in UNBOUNDED:
        low = float(np.quantile(known, (1 - LEVEL) / 2, method="lower"))
        return Interval(
            estimate, low, float(np.quantile(known, (1 + LEVEL) / 2, method="higher")), seeds
        )
    return interval_of(estimate, known, seeds, 1, LEVEL)


def _oracle_tokens(passages: Sequence[Passage], seeds: Sequence[int] | None = None) -> list[float]:
    """By passage the tokens of the oracle's mean course over the seeds."""
    found = []
    for passage in passages:
        chosen = range(len(passage.oracle)) if seeds is None else seeds
        totals = [passage.oracle[i].valid_tps.sum() * passage.oracle[i].window_s for i in chosen]
        found.append(float(np.mean(totals)))
    return found


def _mean(series: Sequence[Series]) -> Series:
    """Window by window; counts become means too, which `adaptation` only adds up."""

    def mean(name: str) -> Any:
        return np.mean([getattr(of, name) for of in series], axis=0)

    return Series(
        start_s=series[0].start_s,
        window_s=series[0].window_s,
        valid_tps=mean("valid_tps"),
        iterations=mean("iterations"),
        judged=mean("judged"),
        violations=mean("violations"),
        changes=mean("changes"),
    )
