"""The figures that are always given by class: means over the seeds, without a ranking.

Intervals and what they allow to be said are `eval.table`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from eval.metrics import ClassMetrics, Percentiles
from eval.runner import Comparison
from eval.writing import number

COLUMNS = (
    "",
    "class",
    "requests",
    "attainment % (TPOT, TTFT alone)",
    "TTFT s, p50 / p95 / p99",
    "TPOT ms, p50 / p95 / p99",
    "ITL ms, p50 / p95 / p99",
    "completion s, p50 / p95 / p99",
    "verified nodes",
    "wasted nodes",
    "largest queue age s",
)


def class_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row a controller and class that had requests, in the order of `COLUMNS`."""
    rows = []
    for name, runs in comparison.runs.items():
        for slo_class in runs[0].metrics.by_class if runs else ():
            own = [run.metrics.by_class[slo_class] for run in runs]
            if any(metrics.requests for metrics in own):
                rows.append((name, slo_class, *_figures(own)))
    return rows


def _figures(own: Sequence[ClassMetrics]) -> tuple[str, ...]:
    def mean(figure: Callable[[ClassMetrics], float]) -> float:
        return _mean(figure(metrics) for metrics in own)

    def three(of: Callable[[ClassMetrics], Percentiles], scale: float, digits: int) -> str:
        shown = (scale * _mean(getattr(of(m), p) for m in own) for p in ("p50", "p95", "p99"))
        return " / ".join(number(value, digits) for value in shown)

    shares = (lambda m: m.tpot_attainment, lambda m: m.ttft_attainment)
    alone = ", ".join(number(100 * mean(share), 0) for share in shares)
    return (
        number(mean(lambda m: m.requests), 1),
        f"{number(100 * mean(lambda m: m.attainment), 0)} ({alone})",
        three(lambda m: m.ttft_s, 1.0, 2),
        three(lambda m: m.tpot_s, 1e3, 0),
        three(lambda m: m.itl_s, 1e3, 0),
        three(lambda m: m.completion_s, 1.0, 2),
        number(mean(lambda m: m.verified_nodes), 0),
        number(mean(lambda m: m.wasted_nodes), 0),
        number(mean(lambda m: m.largest_queue_age_s), 2),
    )


def _mean(values: Iterable[float]) -> float:
    """Over the seeds that had something to count."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
