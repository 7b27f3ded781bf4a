"""What an episode was worth: every metric that the ledger's lines permit, each defined once.

Definitions are those of ALGORITHMS.md §10. All are functions of `RequestRecord`s alone; intervals
over seeds are `eval.statistics`, what an iteration costs is `eval.cost`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.classes import ClassTable
from engine.request import RequestRecord, Status


@dataclass(frozen=True)
class Percentiles:
    """Three percentiles; nan of an empty sample, inf where the request never got that far."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class ClassMetrics:
    """One class in one episode. Shares are within 0 to 1, nan where no objective is set."""

    requests: int
    violations: int
    rejected: int
    overdue: int
    attainment: float
    tpot_attainment: float
    ttft_attainment: float
    tpot_s: Percentiles
    tpot_ratio: Percentiles
    """TPOT divided by the request's objective: above 1 is late; nan without an objective."""
    ttft_s: Percentiles
    itl_s: Percentiles
    completion_s: Percentiles
    verified_nodes: int
    wasted_nodes: int
    output_tokens: int
    valid_tokens: int
    largest_queue_age_s: float


@dataclass(frozen=True)
class EpisodeMetrics:
    """One episode under one controller. Rates are per second of the engine's clock."""

    requests: int
    unfinished: int
    output_tokens: int
    valid_tokens: int
    span_s: float
    attainment: float
    tpot_attainment: float
    ttft_attainment: float
    goodput_tps: float
    throughput_tps: float
    valid_tps: float
    violations: int
    by_class: dict[str, ClassMetrics]


def tpot_attainment(records: Iterable[RequestRecord]) -> float:
    """Share of requests with a TPOT objective whose mean TPOT kept to it (AdaServe's share).

    An unfinished or rejected request is a miss; a one-token answer counts as met. One that its
    user cancelled is left out, or a miss if it was overdue by then.
    """
    return _share(
        [r.tpot_met for r in records if r.has_objective and math.isfinite(r.tpot_objective_s)]
    )


def ttft_attainment(records: Iterable[RequestRecord]) -> float:
    """Share of requests with a TTFT objective whose first token came in time."""
    return _share(
        [r.ttft_met for r in records if r.has_objective and math.isfinite(r.ttft_objective_s)]
    )


def attainment(records: Iterable[RequestRecord]) -> float:
    """Share of requests with an objective that met all of theirs."""
    return _share([r.attained for r in records if r.has_objective])


def violations(records: Iterable[RequestRecord]) -> int:
    """Requests with an objective that missed one of theirs."""
    return sum(r.has_objective and not r.attained for r in records)


def span_s(records: Iterable[RequestRecord]) -> float:
    """First arrival to last finish, in seconds of the engine's clock; 0 without requests."""
    rows = list(records)
    if not rows:
        return 0.0
    return max(r.finish_s for r in rows) - min(r.arrival_s for r in rows)


def goodput_tps(records: Sequence[RequestRecord]) -> float:
    """Tokens of attaining requests per second between first arrival and last finish."""
    return _rate(sum(r.good_tokens for r in records), span_s(records))


def throughput_tps(records: Sequence[RequestRecord]) -> float:
    """All emitted tokens, whether in time or not, per second of the same span."""
    return _rate(sum(r.output_tokens for r in records), span_s(records))


def valid_tps(records: Sequence[RequestRecord]) -> float:
    """SLO-valid tokens per second: token i is valid if emitted by first token + i objectives."""
    return _rate(sum(r.valid_tokens for r in records), span_s(records))


def tpot_percentiles(records: Iterable[RequestRecord]) -> Percentiles:
    """TPOT in seconds: decode time over tokens after the first.

    One-token answers have none and are left out, as are requests cut before their first token
    (TTFT and completion time tell of those). One cut after its first token counts with the time
    that it had waited for the second, since leaving it out would flatter a slow controller.
    """
    return percentiles(_tpots(records))


def tpot_ratio_percentiles(records: Iterable[RequestRecord]) -> Percentiles:
    """TPOT over the request's own objective, requests without one left out."""
    rows = [r for r in records if math.isfinite(r.tpot_objective_s)]
    return percentiles([t / r.tpot_objective_s for r in rows for t in _tpots([r])])


def ttft_percentiles(records: Iterable[RequestRecord]) -> Percentiles:
    """Arrival to first token in seconds; inf where none was emitted, none that was withdrawn."""
    rows = [r for r in records if r.status is not Status.CANCELLED]
    return percentiles([math.inf if math.isnan(r.ttft_s) else r.ttft_s for r in rows])


def itl_percentiles(records: Iterable[RequestRecord]) -> Percentiles:
    """Inter-token latency in seconds, over all gaps of all requests."""
    return percentiles([gap_s for record in records for gap_s in inter_token_gaps_s(record)])


def inter_token_gaps_s(record: RequestRecord) -> list[float]:
    """Gaps between a request's tokens: k tokens of one iteration give k, k - 1 of them zero.

    One cut while it decoded has a gap more where its wait for the next token was its longest. Empty
    where nobody watched the iterations (`eval.emissions`), since then only their number is known.
    """
    if not record.gaps_s:
        return []
    together = record.output_tokens - 1 - record.iterations
    return [*record.gaps_s, *[0.0] * together]


def completion_percentiles(records: Iterable[RequestRecord]) -> Percentiles:
    """Arrival to end in seconds; inf for a request that did not finish, none that was withdrawn."""
    return percentiles(
        [
            r.finish_s - r.arrival_s if r.status is Status.FINISHED else math.inf
            for r in records
            if r.status is not Status.CANCELLED
        ]
    )


def largest_queue_age_s(records: Iterable[RequestRecord]) -> float:
    """Longest wait for a slot, after a preemption too; one without a slot waited until the cut."""
    return max((record.queue_age_s for record in records), default=0.0)


def percentiles(values: Iterable[float]) -> Percentiles:
    """Smallest observed value with at least that share of the sample at or below it.

    An observed value and no interpolation, so that a sample may hold inf.
    """
    ordered = sorted(values)
    if not ordered:
        return Percentiles(math.nan, math.nan, math.nan)
    ranks = (max(math.ceil(percent * len(ordered) / 100), 1) for percent in (50, 95, 99))
    return Percentiles(*(ordered[rank - 1] for rank in ranks))


def summarise(records: Sequence[RequestRecord], classes: ClassTable) -> EpisodeMetrics:
    """All metrics of one episode; every class of the table has its entry, with or without requests.

    `records` are those of `Engine.close_records()`: the unfinished ones count as misses.
    """
    return EpisodeMetrics(
        requests=len(records),
        unfinished=sum(r.status is Status.UNFINISHED for r in records),
        output_tokens=sum(r.output_tokens for r in records),
        valid_tokens=sum(r.valid_tokens for r in records),
        span_s=span_s(records),
        attainment=attainment(records),
        tpot_attainment=tpot_attainment(records),
        ttft_attainment=ttft_attainment(records),
        goodput_tps=goodput_tps(records),
        throughput_tps=throughput_tps(records),
        valid_tps=valid_tps(records),
        violations=violations(records),
        by_class={
            name: summarise_class([r for r in records if r.slo_class == index])
            for index, name in enumerate(classes.names)
        },
    )


def summarise_class(records: Sequence[RequestRecord]) -> ClassMetrics:
    """The metrics that are always given by class, for records of one class."""
    return ClassMetrics(
        requests=len(records),
        violations=violations(records),
        rejected=sum(r.status is Status.REJECTED for r in records),
        overdue=sum(r.overdue for r in records),
        attainment=attainment(records),
        tpot_attainment=tpot_attainment(records),
        ttft_attainment=ttft_attainment(records),
        tpot_s=tpot_percentiles(records),
        tpot_ratio=tpot_ratio_percentiles(records),
        ttft_s=ttft_percentiles(records),
        itl_s=itl_percentiles(records),
        completion_s=completion_percentiles(records),
        verified_nodes=sum(r.verified_nodes for r in records),
        wasted_nodes=sum(r.wasted_nodes for r in records),
        output_tokens=sum(r.output_tokens for r in records),
        valid_tokens=sum(r.valid_tokens for r in records),
        largest_queue_age_s=largest_queue_age_s(records),
    )


def _tpots(records: Iterable[RequestRecord]) -> list[float]:
    waited = (
        r.finish_s - r.first_token_s
        if r.status is not Status.FINISHED and r.output_tokens == 1
        else r.tpot_s
        for r in records
    )
    return [seconds for seconds in waited if not math.isnan(seconds)]


def _share(met: Sequence[bool]) -> float:
    return sum(met) / len(met) if met else math.nan


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0
