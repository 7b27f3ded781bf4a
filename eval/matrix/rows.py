"""The matrix's rows: one for a cell, a controller and a class, and one for all classes together.

Percentiles are over the requests of all of the cell's seeds, since a run alone has too few for a
p99. Attainment and goodput also stand seed by seed: what they may show is a question of seeds. Who
raised has one row that says so, without figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.classes import ClassTable
from engine.request import RequestRecord
from eval.matrix.axes import AXES, Cell
from eval.matrix.resources import Resources
from eval.metrics import (
    ClassMetrics,
    Percentiles,
    attainment,
    goodput_tps,
    percentiles,
    summarise_class,
    throughput_tps,
)
from eval.runner import Run

if TYPE_CHECKING:
    import pyarrow

ALL = "all"
"""In the place of a class: all requests together."""
BY_SEED = ("attainment_by_seed", "goodput_by_seed")
TAILS = ("ttft_s", "tpot_s", "tpot_ratio", "itl_s", "completion_s")
_COUNTS = ("requests", "violations", "rejected_requests", "overdue", "output_tokens")
_NODES = ("valid_tokens", "verified_nodes", "wasted_nodes")
_SHARES = ("attainment", "tpot_attainment", "ttft_attainment", "goodput_tps", "throughput_tps")
_ENGINE = (
    *("goodput_of_capacity", "capacity_tps", "valid_tps", "valid_tokens_per_device_s"),
    *("joules_per_token", "joules_per_valid_token", "rejected_nodes", "waste_share"),
    *("tokens_per_iteration", "decision_s", "kv_tokens_peak", "memory_bytes"),
)
"""Of the engine as a whole: in rows of all classes alone."""
_PERCENTILES = tuple(f"{name}_{p}" for name in (*TAILS, "watts") for p in ("p50", "p95", "p99"))
NUMBERS = ("queue_age_s", *_SHARES, *_ENGINE, *_PERCENTILES)


def schema() -> pyarrow.Schema:
    """The columns and their types: whatever a piece holds, pieces fit together."""
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    named = {name: text for name in ("cell", *AXES, "controller", "slo_class", "fault")}
    counted = {name: pa.int64() for name in (*_COUNTS, *_NODES)}
    listed = {"seeds": pa.list_(pa.int64()), **{name: pa.list_(number) for name in BY_SEED}}
    return pa.schema({**named, **listed, **counted, **dict.fromkeys(NUMBERS, number)})


def fault_row(cell: Cell, controller: str, seeds: Sequence[int], fault: str) -> dict[str, Any]:
    """Of a controller that raised in this cell: its other rows there do not exist."""
    return {**_place(cell, controller, seeds, ALL), "fault": fault}


def rows_of(
    cell: Cell,
    controller: str,
    runs: Sequence[Run],
    records: Sequence[Sequence[RequestRecord]],
    held: Sequence[Resources],
    classes: ClassTable,
    capacity_tps: float,
) -> list[dict[str, Any]]:
    """The rows of one controller in one cell, a run a seed; the one of all classes first."""
    seeds = [run.seed for run in runs]
    together = {
        **_place(cell, controller, seeds, ALL),
        **_of_requests(records),
        **_of_engine(runs, held, capacity_tps),
    }
    by_class = [
        {
            **_place(cell, controller, seeds, name),
            **_of_requests([[r for r in of_seed if r.slo_class == c] for of_seed in records]),
        }
        for c, name in enumerate(classes.names)
    ]
    return [together, *(row for row in by_class if row["requests"])]


def _place(cell: Cell, controller: str, seeds: Sequence[int], slo_class: str) -> dict[str, Any]:
    where = {"cell": cell.name, **cell.places}
    return {**where, "controller": controller, "slo_class": slo_class, "seeds": list(seeds)}


def _of_requests(by_seed: Sequence[Sequence[RequestRecord]]) -> dict[str, Any]:
    """Shares and percentiles over all seeds together, rates as means over the seeds."""
    pooled = [record for of_seed in by_seed for record in of_seed]
    metrics = summarise_class(pooled)
    goodput = [goodput_tps(of_seed) for of_seed in by_seed]
    return {
        **_counted(metrics),
        "attainment": metrics.attainment,
        "tpot_attainment": metrics.tpot_attainment,
        "ttft_attainment": metrics.ttft_attainment,
        "attainment_by_seed": [attainment(of_seed) for of_seed in by_seed],
        "goodput_by_seed": goodput,
        "goodput_tps": float(np.mean(goodput)),
        "throughput_tps": float(np.mean([throughput_tps(of_seed) for of_seed in by_seed])),
        "queue_age_s": metrics.largest_queue_age_s,
        **{key: value for name in TAILS for key, value in _three(name, getattr(metrics, name))},
    }


def _counted(metrics: ClassMetrics) -> dict[str, int]:
    return {
        "requests": metrics.requests,
        "violations": metrics.violations,
        "rejected_requests": metrics.rejected,
        "overdue": metrics.overdue,
        "output_tokens": metrics.output_tokens,
        "valid_tokens": metrics.valid_tokens,
        "verified_nodes": metrics.verified_nodes,
        "wasted_nodes": metrics.wasted_nodes,
    }


def _of_engine(
    runs: Sequence[Run], held: Sequence[Resources], capacity_tps: float
) -> dict[str, float]:
    """What serving cost, means over the seeds; the most memory of any, and watts of all."""
    means = {
        "valid_tps": [run.metrics.valid_tps for run in runs],
        **{
            name: [float(getattr(run, name)) for run in runs]
            for name in (
                *("valid_tokens_per_device_s", "joules_per_token", "joules_per_valid_token"),
                *("rejected_nodes", "waste_share", "tokens_per_iteration", "decision_s"),
            )
        },
    }
    goodput = float(np.mean([run.metrics.goodput_tps for run in runs]))
    watts = percentiles(value for of_run in held for value in of_run.watts)
    return {
        **{name: _known_mean(values) for name, values in means.items()},
        "capacity_tps": capacity_tps,
        "goodput_of_capacity": goodput / capacity_tps,
        "kv_tokens_peak": float(max(max(of_run.kv_tokens, default=0) for of_run in held)),
        "memory_bytes": float(max(of_run.memory_bytes for of_run in held)),
        **dict(_three("watts", watts)),
    }


def _three(name: str, found: Percentiles) -> list[tuple[str, float]]:
    return [(f"{name}_{p}", getattr(found, p)) for p in ("p50", "p95", "p99")]


def _known_mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def table(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """The rows in the matrix's columns."""
    import pyarrow as pa

    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema())
