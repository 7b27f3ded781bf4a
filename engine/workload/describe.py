"""What a list of arrivals looks like in numbers: rates by class, lengths, burstiness.

Knows arrays only; `command` prints them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.protocol import Floats, Ints
from engine.workload.episode import Arrivals

PERCENTILES = (50, 95, 99)


class Lengths(NamedTuple):
    """Of prompts or outputs, in tokens."""

    mean: float
    percentiles: tuple[float, ...]  # as PERCENTILES


class ClassSummary(NamedTuple):
    """One class, or all of them together."""

    name: str
    requests: int
    share: float
    rate_rps: float
    cv: float  # of the gaps; nan below three requests
    prompt: Lengths | None  # None where the workload has no lengths of its own
    output: Lengths | None


class Summary(NamedTuple):
    """A described workload."""

    duration_s: float  # last end of its spans
    classes: list[ClassSummary]  # those that occur, and "all" last where there are several
    busiest_s: int  # most arrivals in one second of the clock
    dispersion: float  # variance over mean of the arrivals in ten seconds; 1 is Poisson
    rates_rps: Floats  # [bins] of equal parts of the duration


def cv_of_gaps(times_s: Floats) -> float:
    """Standard deviation of the gaps between sorted times [n] over their mean; nan if undefined."""
    gaps = np.diff(times_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else float("nan")


def summarize(arrivals: Arrivals, class_names: tuple[str, ...], bins: int = 60) -> Summary:
    """The numbers of one episode; `bins` parts of its duration show how the rate moves."""
    times_s = arrivals.arrival_s
    last_s = float(times_s[-1]) if len(times_s) else 0.0
    duration_s = max(arrivals.spans[-1].end_s, last_s)
    found = [
        _of_class(name, np.flatnonzero(arrivals.slo_class == c), arrivals, duration_s)
        for c, name in enumerate(class_names)
    ]
    found = [summary for summary in found if summary.requests]
    if len(found) != 1:
        found.append(_of_class("all", np.arange(len(times_s)), arrivals, duration_s))
    counts, _ = np.histogram(times_s, bins, (0.0, duration_s))
    # Counted where something came: an array over all seconds would be as long as the last one.
    _, seconds = np.unique(times_s.astype(np.int64), return_counts=True)
    dispersion = _dispersion(times_s, duration_s, max(int(duration_s // 10), 1))
    rates = counts / (duration_s / bins)
    return Summary(duration_s, found, int(seconds.max(initial=0)), dispersion, rates)


def _dispersion(times_s: Floats, duration_s: float, parts: int) -> float:
    """Variance over mean of the counts in so many equal parts of the duration; nan of no times."""
    if not len(times_s):
        return float("nan")
    part = np.minimum((times_s / duration_s * parts).astype(np.int64), parts - 1)
    _, counts = np.unique(part, return_counts=True)
    mean = len(times_s) / parts
    return float((counts**2).sum() / parts / mean - mean)


def _of_class(name: str, at: Ints, arrivals: Arrivals, duration_s: float) -> ClassSummary:
    total = max(len(arrivals.arrival_s), 1)
    return ClassSummary(
        name,
        len(at),
        len(at) / total,
        len(at) / duration_s,
        cv_of_gaps(arrivals.arrival_s[at]),
        _lengths(arrivals.prompt_tokens, at),
        _lengths(arrivals.output_tokens, at),
    )


def _lengths(tokens: Ints | None, at: Ints) -> Lengths | None:
    if tokens is None or not len(at):
        return None
    percentiles = np.percentile(tokens[at], PERCENTILES)
    return Lengths(float(tokens[at].mean()), tuple(float(p) for p in percentiles))
