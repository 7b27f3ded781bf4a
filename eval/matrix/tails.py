"""What the matrix's regimes do not say: waits by class, what serving cost, the worst cells.

Seconds and joules of different targets are not to be put together: these figures are by target.
Over a target's cells they are interquartile means; their intervals say how far cells lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.protocol import Floats
from eval.matrix.rows import ALL, TAILS
from eval.matrix.scores import Scores
from eval.parts import figure
from eval.statistics import Interval, interquartile_mean, mean_interval
from eval.tails import conditional_value_at_risk, performance_profile

if TYPE_CHECKING:
    import pyarrow

COST = {
    "valid_tokens_per_device_s": "SLO-valid tokens per device-second",
    "joules_per_token": "joules per emitted token",
    "joules_per_valid_token": "joules per SLO-valid token",
    "rejected_nodes": "nodes verified in vain, a run",
    "waste_share": "share of drafted nodes that came to nothing",
    "kv_tokens_peak": "most cached tokens at once",
    "memory_bytes": "memory of the process, bytes (modelled)",
    "watts_p50": "watts, median of the iterations (modelled)",
    "watts_p99": "watts, p99 of the iterations (modelled)",
    "throughput_tps": "tokens a second, whether in time or not",
}
"""Of all classes together, by controller and target."""
WAITS = tuple(f"{name}_{p}" for name in TAILS for p in ("p50", "p95", "p99"))
THRESHOLDS = tuple(i / 20 for i in range(20))


def by_target(rows: pyarrow.Table, rng: np.random.Generator) -> list[dict[str, Any]]:
    """For each target, controller and class (`all` too): waits, attainment, and of `all` cost."""
    found = []
    for (target, controller, slo_class), table in _groups(rows):
        names = ["attainment", "tpot_attainment", "ttft_attainment", *WAITS]
        names += COST if slo_class == ALL else ()
        figures = {name: figure(_over_cells(_column(table, name), rng), 0.0) for name in names}
        found.append(
            {
                "target": target,
                "controller": controller,
                "slo_class": slo_class,
                "cells": table.num_rows,
                "figures": figures,
            }
        )
    return found


def worst(scores: Scores, rng: np.random.Generator) -> dict[str, Any]:
    """Of each controller the mean of its worst twentieth of runs, by attainment and by goodput
    (multiples of capacity), and its performance profile of attainment.
    """
    found = {}
    for c, name in enumerate(scores.controllers):
        attainment, goodput = (scores.of[metric][c] for metric in ("attainment", "goodput"))
        cells = np.repeat(np.arange(len(attainment)), attainment.shape[1]).tolist()
        runs = attainment.ravel()
        profile = performance_profile(runs, THRESHOLDS, rng, draws=400, strata=cells)
        found[name] = {
            "cvar_5": figure(_worst_runs(runs, cells, rng), 0, 1),
            "goodput_cvar_5": figure(_worst_runs(goodput.ravel(), cells, rng), 0),
            "profile": [figure(i, 0, 1) for i in profile],
        }
    return {"metric": "attainment", "thresholds": list(THRESHOLDS), "controllers": found}


def _worst_runs(values: Floats, cells: Sequence[int], rng: np.random.Generator) -> Interval:
    return mean_interval(values, rng, strata=cells, statistic=conditional_value_at_risk)


def _over_cells(values: Floats, rng: np.random.Generator) -> Interval:
    """Cells with a wait that never ended are left out of no percentile: they make it infinite."""
    with np.errstate(invalid="ignore"):
        return mean_interval(values, rng, draws=400, statistic=interquartile_mean)


def _groups(rows: pyarrow.Table) -> Iterator[tuple[tuple[str, str, str], pyarrow.Table]]:
    import pyarrow.compute as pc

    stood = rows.filter(pc.is_null(rows["fault"]))
    keys = ["target", "controller", "slo_class"]
    for row in stood.group_by(keys, use_threads=False).aggregate([]).to_pylist():
        key = row["target"], row["controller"], row["slo_class"]
        masks = [pc.equal(stood[name], value) for name, value in zip(keys, key, strict=True)]
        yield key, stood.filter(pc.and_(pc.and_(masks[0], masks[1]), masks[2]))


def _column(table: pyarrow.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), np.float64)
