"""One episode of a workload before any text: who arrives when, how long, and what goes wrong.

NumPy only, and the one place where traces, drawn arrivals and disturbances meet, so the live engine
and replay draw the same. Prompts are `build`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from engine.classes import ClassTable
from engine.protocol import Floats, Ints
from engine.workload.arrivals import (
    Span,
    arrival_classes,
    arrival_times,
    aside,
    class_weights,
    draw_spans,
    need_capacity,
    need_classes,
    need_servable,
)
from engine.workload.config import WorkloadConfig
from engine.workload.disturbances import Disturbance, Disturbances
from engine.workload.traces import ArrivalSource, Trace

RAMP_STEPS = 20  # spans that a ramp of the arrival rate, mix or burst is cut into


class Arrivals(NamedTuple):
    """What every controller of a comparison is given alike; n requests in order."""

    arrival_s: Floats  # [n]
    slo_class: Ints  # [n] index into the class table
    prompt_tokens: Ints | None  # [n] as the trace has them; None: as long as the prompts are
    output_tokens: Ints | None  # [n] likewise; None: drawn under the workload's max_tokens
    spans: list[Span]  # true change points; of a trace one span with its mean rate
    disturbances: Disturbances
    left_out: int = 0  # requests of the trace that nobody could serve


class Pace(NamedTuple):
    """How a trace moves under the factor on the arrival rate: P pieces of constant speed.

    Served seconds are those on the engine's clock, passed seconds those that the trace went on.
    """

    edges_s: Floats  # [P + 1] served
    speed: Floats  # [P] passed seconds a served one
    passed_s: Floats  # [P + 1] passed by each edge
    is_endless: bool  # whether it goes on at the last speed beyond the last edge

    @classmethod
    def of(cls, duration_s: float, disturbances: Disturbances) -> Pace:
        """Over `duration_s` served seconds; inf: on and on."""
        is_endless = math.isinf(duration_s)
        moving = disturbances if disturbances.has("arrival_rate") else Disturbances()
        end_s = float(moving.points_s[-1]) + 1.0 if is_endless else duration_s
        edges_s = np.array(_edges_s(0.0, end_s, moving))
        middles_s = (edges_s[1:] + edges_s[:-1]) / 2
        speed = np.array([disturbances.value("arrival_rate", at_s) for at_s in middles_s.tolist()])
        passed_s = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * speed)])
        return cls(edges_s, speed, passed_s, is_endless)

    @property
    def latest_s(self) -> float:
        """Served second at which the trace is over for good."""
        return math.inf if self.is_endless and self.speed[-1] > 0 else float(self.edges_s[-1])

    def passes_s(self) -> float:
        """How much of the trace is needed, in passed seconds, never quite nothing."""
        return math.inf if self.latest_s == math.inf else max(float(self.passed_s[-1]), 1e-9)

    def served_at_s(self, times_s: Floats) -> Floats:
        """When what the trace has at `times_s` [n] is served; inf where it never gets there.

        During a stand nobody arrives: what is due just then comes when it goes on.
        """
        piece = np.searchsorted(self.passed_s, times_s, side="right") - 1
        last = len(self.speed) - 1
        beyond = piece > last
        piece = np.minimum(piece, last)
        speed = np.where(self.speed[piece] > 0, self.speed[piece], 1.0)
        served_s = self.edges_s[piece] + (times_s - self.passed_s[piece]) / speed
        return np.where(beyond & (self.latest_s < math.inf), math.inf, served_s)


def draw_arrivals(
    config: WorkloadConfig,
    classes: ClassTable,
    capacity_rps: float,
    generator: np.random.Generator,
    source: ArrivalSource | None = None,
) -> Arrivals:
    """One episode; the same seed gives the same, bit for bit, in every process.

    `source` is the loaded trace of a workload that has one, None reads it anew. Disturbances of
    acceptance, draft time, memory and power leave the arrivals of a seed alone.
    Raises UserError for an unknown class, a capacity that is none, a trace that cannot be read.
    """
    drawn = aside(generator, "disturbances") if config.drawn_disturbances else None
    where = f"workload {config.name!r}"
    named = {d.slo_class for d in config.disturbances}
    named |= {d.slo_class for d in config.drawn_disturbances}
    need_classes(where, "a disturbance", sorted(named - {""}), classes)
    faults = list(config.disturbances)
    if drawn is not None:
        faults += [f for d in config.drawn_disturbances if (f := d.draw(drawn)) is not None]
    if config.trace is not None:
        return _traced(config, classes, capacity_rps, generator, source, Disturbances(faults))
    spans = draw_spans(config, classes, capacity_rps, generator)
    disturbances = Disturbances([*faults, *drift_of(spans)])
    served = disturbed_spans(spans, disturbances, classes)
    need_servable(where, served)
    times_s = arrival_times(served, config.cv, generator, config.process)
    slo_class = arrival_classes(times_s, served, generator)
    return Arrivals(times_s, slo_class, None, None, spans, disturbances)


def drift_of(spans: Sequence[Span]) -> list[Disturbance]:
    """The regimes' factors on acceptance and draft time, as disturbances."""
    return [
        Disturbance(kind, span.start_s, span.end_s, value)
        for span in spans
        for kind, value in (("acceptance", span.acceptance), ("draft_time", span.draft_time))
        if value != 1
    ]


def disturbed_spans(
    spans: Sequence[Span], disturbances: Disturbances, classes: ClassTable
) -> list[Span]:
    """The spans under the disturbances of rate, mix and burst, cut where these change."""
    if not disturbances.has("arrival_rate", "mix", "burst"):
        return list(spans)
    value = disturbances.value
    cut: list[Span] = []
    for span in spans:
        for at_s, until_s in pairwise(_edges_s(span.start_s, span.end_s, disturbances)):
            seen_s = (at_s + until_s) / 2
            factors = np.array([value("mix", seen_s, name) for name in classes.names])
            weights = span.weights * factors
            rate_rps = span.rate_rps * value("arrival_rate", seen_s)
            if weights.sum() > 0:
                weights = weights / weights.sum()
            else:  # all who could come are kept away
                weights, rate_rps = span.weights, 0.0
            burst = span.burst * value("burst", seen_s)
            cut.append(
                span._replace(
                    start_s=at_s, end_s=until_s, rate_rps=rate_rps, weights=weights, burst=burst
                )
            )
    return cut


def _edges_s(start_s: float, end_s: float, disturbances: Disturbances) -> list[float]:
    """Ends of the pieces of a span in which the disturbances may be taken as constant."""
    points_s = disturbances.points_s
    inner = points_s[(points_s > start_s) & (points_s < end_s)].tolist()
    edges = [start_s]
    for at_s, until_s in pairwise([start_s, *inner, end_s]):
        i = max(int(np.searchsorted(points_s, at_s, side="right")) - 1, 0)
        steps = RAMP_STEPS if disturbances.slope[i].any() else 1
        edges += np.linspace(at_s, until_s, steps + 1).tolist()[1:]
    return edges


def _traced(
    config: WorkloadConfig,
    classes: ClassTable,
    capacity_rps: float,
    generator: np.random.Generator,
    source: ArrivalSource | None,
    disturbances: Disturbances,
) -> Arrivals:
    use = config.trace
    if use is None:
        raise ValueError("a traced episode needs a trace")
    where = f"workload {config.name!r}"
    need_capacity(config, capacity_rps)
    rate_rps = config.rate_rps
    if rate_rps is None and config.load is not None:
        rate_rps = config.load * capacity_rps
    loaded = use.load() if source is None else source
    pace = Pace.of(config.duration_s, disturbances)
    trace = use.draw(loaded, rate_rps, pace.passes_s(), generator)
    times_s = pace.served_at_s(trace.arrival_s)
    kept = times_s < config.duration_s
    end_s = min(float(pace.served_at_s(np.array([trace.duration_s]))[0]), pace.latest_s)
    trace, times_s = trace.picked(np.flatnonzero(kept)), times_s[kept]
    weights = class_weights(where, config.mix, classes)
    slo_class = _classes_of(trace, config, classes)
    missing = np.flatnonzero(slo_class < 0)
    if len(missing):
        mean = Span(0.0, end_s, 0.0, weights)
        slo_class[missing] = arrival_classes(times_s[missing], [mean], generator)
    span = Span(0.0, end_s, len(trace) / end_s, weights)
    lengths = trace.prompt_tokens, trace.output_tokens
    left_out = loaded.left_out if isinstance(loaded, Trace) else 0
    return Arrivals(times_s, slo_class, *lengths, [span], disturbances, left_out)


def _classes_of(trace: Trace, config: WorkloadConfig, classes: ClassTable) -> Ints:
    """[n] index into the class table, -1 where the trace does not say."""
    if trace.slo_class is None or config.trace is None:
        return np.full(len(trace), -1, np.int64)
    ours = [config.trace.classes.get(name, name) for name in trace.class_names]
    need_classes(f"workload {config.name!r}", f"trace {config.trace.source}", ours, classes)
    place = np.array([classes.names.index(name) for name in ours] + [-1], np.int64)
    return place[trace.slo_class]
