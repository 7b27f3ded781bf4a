"""When requests arrive and of which class: a renewal process whose rate changes by regime.

NumPy only. Knows no prompt and no controller, so every controller meets the same arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from itertools import groupby
from typing import NamedTuple

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.protocol import Floats, Ints
from engine.workload.checks import nearest
from engine.workload.config import Regime, WorkloadConfig
from engine.workload.renewal import CV_RANGE, Gaps, Process, marks_until
from engine.workload.trace_use import MAX_REQUESTS

PEAK_STEPS = 360  # spans that a workload with peaks is cut into: a second each in AdaServe's


class Span(NamedTuple):
    """A regime as it is served: on the clock, in requests per second."""

    start_s: float
    end_s: float
    rate_rps: float
    weights: Floats  # [C] probability of each class
    acceptance: float = 1.0  # factor
    draft_time: float = 1.0  # factor
    burst: float = 1.0  # factor on the workload's cv


def draw_spans(
    config: WorkloadConfig,
    classes: ClassTable,
    capacity_rps: float,
    generator: np.random.Generator,
) -> list[Span]:
    """The regimes of one episode, end to end from 0 to `config.duration_s`.

    `capacity_rps` turns loads into rates. Only `shifts` draws from the generator, and before
    anything else does: a fresh generator of the same seed gives the spans of `build_episode`,
    hence the true change points. Disturbances are not in them, and a trace has none.
    UserError for an unknown class or a capacity that is none.
    """
    where = f"workload {config.name!r}"
    need_capacity(config, capacity_rps)
    weights = class_weights(where, config.mix, classes)
    end_s = float(config.duration_s)
    rate_rps = config.rate_rps
    if rate_rps is None and config.load is not None:
        rate_rps = config.load * capacity_rps
    spans: list[Span] = []
    if rate_rps is not None:
        rate_rps = float(rate_rps)
        if config.peaks:
            spans = peaked_spans(config, classes, rate_rps)
        else:
            spans.append(Span(0.0, end_s, rate_rps, weights))
    else:
        regimes = config.regimes or _drawn_regimes(config, classes, weights, generator)
        start_s = 0.0
        for regime in regimes:
            if start_s >= end_s:
                break
            stop_s = min(start_s + regime.duration_s, end_s)
            own = class_weights(where, regime.mix, classes) if regime.mix else weights
            rate = regime.load * capacity_rps
            spans.append(Span(start_s, stop_s, rate, own, regime.acceptance, regime.draft_time))
            start_s = stop_s
    need_servable(where, spans)
    return spans


def counts_in_capacity(config: WorkloadConfig) -> bool:
    """Whether the workload's speed is stated in multiples of a capacity."""
    is_native = config.trace is not None and config.load is None
    return config.rate_rps is None and not is_native


def need_capacity(config: WorkloadConfig, capacity_rps: float) -> None:
    """Raise UserError where loads would have to be multiplied by a capacity that is none."""
    if counts_in_capacity(config) and not 0 < capacity_rps < math.inf:
        raise UserError(
            f"workload {config.name!r}: capacity_rps is {capacity_rps}; expected a positive number "
            "of requests per second"
        )


def need_servable(where: str, spans: Sequence[Span]) -> None:
    """Raise UserError where the spans bring more requests than anybody means."""
    expected = math.fsum((s.end_s - s.start_s) * s.rate_rps for s in spans)
    if not expected <= MAX_REQUESTS:
        raise UserError(
            f"{where}: it would bring about {expected:.3g} requests and at most {MAX_REQUESTS:,} "
            "are possible; lower duration_s or the rate"
        )


def aside(generator: np.random.Generator, word: str) -> np.random.Generator:
    """Another generator, fixed by the state of this one and a word; this one is not advanced.

    So acceptance drifts or does not drift under the very same arrivals.
    """
    seen = deepcopy(generator).integers(0, 2**32, 4).tolist()
    return np.random.default_rng([*seen, *word.encode()])


def arrival_times(
    spans: Sequence[Span], cv: float, generator: np.random.Generator, process: Process = "gamma"
) -> Floats:
    """[n] sorted arrival times in seconds, every one before the last span's end.

    A renewal process of unit rate with gaps of that cv (1 is Poisson), stretched so that its rate
    follows the spans; it starts anew where their burstiness changes. Two loads of one seed share
    the underlying draws.
    """
    edges_s = np.array([spans[0].start_s, *(span.end_s for span in spans)])
    counts = np.array([span.rate_rps for span in spans]) * np.diff(edges_s)
    passed = np.concatenate([[0.0], np.cumsum(counts)])  # expected arrivals by each edge
    parts: list[Floats] = []
    first = 0
    for burst, alike in groupby(spans, key=lambda span: span.burst):
        last = first + len(list(alike))
        own_cv = cv if burst == 1 else float(np.clip(cv * burst, *CV_RANGE))
        marks = marks_until(passed[last] - passed[first], Gaps.of_cv(own_cv, process), generator)
        parts.append(passed[first] + marks)
        first = last
    times = np.interp(np.concatenate(parts), passed, edges_s)
    return np.minimum(times, np.nextafter(edges_s[-1], 0.0))


def arrival_classes(times_s: Floats, spans: Sequence[Span], generator: np.random.Generator) -> Ints:
    """[n] class index of each arrival, drawn from the mix of the span that it falls into."""
    starts_s = np.array([span.start_s for span in spans])
    cumulative = np.cumsum([span.weights for span in spans], axis=1)
    cumulative /= cumulative[:, -1:]  # else rounding could give a class of weight 0 its turn
    index = np.searchsorted(starts_s, times_s, side="right") - 1
    draws = generator.random(len(times_s))
    return (draws[:, None] >= cumulative[index]).sum(axis=1).astype(np.int64)


def class_weights(where: str, mix: dict[str, float], classes: ClassTable) -> Floats:
    """[C] probabilities in the table's order. Raises UserError for a class that it lacks."""
    need_classes(where, "mix", mix, classes)
    weights = np.array([mix.get(n, 0.0) if mix else 1.0 for n in classes.names], np.float64)
    return weights / weights.sum()


def need_classes(where: str, what: str, names: Sequence[str] | dict, classes: ClassTable) -> None:
    """Raise UserError for the first of `names` that the table lacks."""
    for name in names:
        if name not in classes.names:
            raise UserError(
                f"{where}: {what} names the class {name!r}; {nearest(name, classes.names)}"
            )


def peaked_spans(config: WorkloadConfig, classes: ClassTable, rate_rps: float) -> list[Span]:
    """Short spans that follow the peaks of every class, of mean rate `rate_rps`."""
    need_classes(f"workload {config.name!r}", "peaks", config.peaks, classes)
    middles = (np.arange(PEAK_STEPS) + 0.5) / PEAK_STEPS
    heights = np.zeros((PEAK_STEPS, len(classes.names)))
    for name, peak in config.peaks.items():
        bell = np.exp(-0.5 * ((middles - peak.at) / peak.width) ** 2)
        heights[:, classes.names.index(name)] = peak.height * bell
    # Far from narrow peaks all heights may be 0, but a mix must sum to something.
    heights += 1e-12 * (heights.max(axis=0) > 0)
    totals = heights.sum(axis=1)
    rates = rate_rps * totals / totals.mean()
    edges_s = np.linspace(0.0, float(config.duration_s), PEAK_STEPS + 1).tolist()
    return [
        Span(edges_s[i], edges_s[i + 1], float(rates[i]), heights[i] / totals[i])
        for i in range(PEAK_STEPS)
    ]


def _drawn_regimes(
    config: WorkloadConfig,
    classes: ClassTable,
    weights: Floats,
    generator: np.random.Generator,
) -> list[Regime]:
    shifts = config.shifts
    if shifts is None:
        raise ValueError("drawn regimes need shifts")
    drift = aside(generator, "drift")
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
        acceptance = float(drift.uniform(*shifts.acceptance))
        is_slow = drift.random() < shifts.slow_probability
        draft_time = float(shifts.slow_draft) if is_slow else 1.0
        regimes.append(Regime(duration_s, load, mix, acceptance, draft_time))
        passed_s += duration_s
    return regimes
