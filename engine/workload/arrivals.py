"""When requests arrive and of which class: a renewal process whose rate changes by regime.

NumPy only. Knows no prompt and no controller, so every controller meets the same arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.protocol import Floats, Ints
from engine.workload.config import Regime, WorkloadConfig, nearest

MAX_REQUESTS = 1_000_000  # expected in one workload; more is a slip in the units


class Span(NamedTuple):
    """A regime as it is served: on the clock, in requests per second."""

    start_s: float
    end_s: float
    rate_rps: float
    weights: Floats  # [C] probability of each class


def draw_spans(
    config: WorkloadConfig,
    classes: ClassTable,
    capacity_rps: float,
    generator: np.random.Generator,
) -> list[Span]:
    """The regimes of one episode, end to end from 0 to `config.duration_s`.

    `capacity_rps` turns loads into rates. Only `shifts` draws from the generator, and before
    anything else does: a fresh generator of the same seed gives the spans of `build_requests`,
    hence the true change points. UserError for an unknown class or a capacity that is none.
    """
    where = f"workload {config.name!r}"
    if config.rate_rps is None and not 0 < capacity_rps < math.inf:
        raise UserError(
            f"{where}: capacity_rps is {capacity_rps}; expected a positive number of requests "
            "per second"
        )
    weights = _weights(where, config.mix, classes)
    end_s = float(config.duration_s)
    spans: list[Span] = []
    if config.rate_rps is not None:
        spans.append(Span(0.0, end_s, float(config.rate_rps), weights))
    elif config.load is not None:
        spans.append(Span(0.0, end_s, config.load * capacity_rps, weights))
    else:
        regimes = config.regimes or _drawn_regimes(config, classes, weights, generator)
        start_s = 0.0
        for regime in regimes:
            if start_s >= end_s:
                break
            stop_s = min(start_s + regime.duration_s, end_s)
            own = _weights(where, regime.mix, classes) if regime.mix else weights
            spans.append(Span(start_s, stop_s, regime.load * capacity_rps, own))
            start_s = stop_s
    expected = math.fsum((s.end_s - s.start_s) * s.rate_rps for s in spans)
    if not expected <= MAX_REQUESTS:
        raise UserError(
            f"{where}: it would bring about {expected:.3g} requests and at most {MAX_REQUESTS:,} "
            "are possible; lower duration_s or the rate"
        )
    return spans


def arrival_times(spans: Sequence[Span], cv: float, generator: np.random.Generator) -> Floats:
    """[n] sorted arrival times in seconds, every one before the last span's end.

    A renewal process of unit rate with gamma gaps (cv 1 is Poisson), stretched so that its rate
    follows the spans. The first gap is the equilibrium one, else bursty arrivals would bunch at the
    start and exceed the rate. Two loads of one seed share the underlying draws.
    """
    edges_s = np.array([spans[0].start_s, *(span.end_s for span in spans)])
    counts = np.array([span.rate_rps for span in spans]) * np.diff(edges_s)
    passed = np.concatenate([[0.0], np.cumsum(counts)])  # expected arrivals by each edge
    shape = 1.0 / cv**2
    first = generator.gamma(shape + 1.0, 1.0 / shape) * generator.random()
    marks = np.array([first])
    block = 64 + int(passed[-1] / 4)
    while marks[-1] < passed[-1]:
        gaps = generator.gamma(shape, 1.0 / shape, size=block)
        marks = np.concatenate([marks, marks[-1] + np.cumsum(gaps)])
    times = np.interp(marks[marks < passed[-1]], passed, edges_s)
    return np.minimum(times, np.nextafter(edges_s[-1], 0.0))


def arrival_classes(times_s: Floats, spans: Sequence[Span], generator: np.random.Generator) -> Ints:
    """[n] class index of each arrival, drawn from the mix of the span that it falls into."""
    starts_s = np.array([span.start_s for span in spans])
    cumulative = np.cumsum([span.weights for span in spans], axis=1)
    cumulative /= cumulative[:, -1:]  # else rounding could give a class of weight 0 its turn
    index = np.searchsorted(starts_s, times_s, side="right") - 1
    draws = generator.random(len(times_s))
    return (draws[:, None] >= cumulative[index]).sum(axis=1).astype(np.int64)


def _weights(where: str, mix: dict[str, float], classes: ClassTable) -> Floats:
    """[C] probabilities in the table's order."""
    for name in mix:
        if name not in classes.names:
            raise UserError(
                f"{where}: mix names the class {name!r}; {nearest(name, classes.names)}"
            )
    weights = np.array([mix.get(n, 0.0) if mix else 1.0 for n in classes.names], np.float64)
    return weights / weights.sum()


def _drawn_regimes(
    config: WorkloadConfig,
    classes: ClassTable,
    weights: Floats,
    generator: np.random.Generator,
) -> list[Regime]:
    shifts = config.shifts
    if shifts is None:
        raise ValueError("drawn regimes need shifts")
    regimes: list[Regime] = []
    passed_s = 0.0
    used = weights > 0
    # Equal weights give Dirichlet(c, c, ..); a stated mix becomes the mean of the drawn ones.
    alpha = shifts.concentration * weights[used] * used.sum()
    names = [n for n, is_used in zip(classes.names, used, strict=True) if is_used]
    while passed_s < config.duration_s:
        duration_s = float(generator.uniform(*shifts.duration_s))
        load = float(generator.uniform(*shifts.load))
        mix = dict(zip(names, generator.dirichlet(alpha).tolist(), strict=True))
        regimes.append(Regime(duration_s, load, mix))
        passed_s += duration_s
    return regimes
