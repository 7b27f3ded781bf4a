"""Slack-priced against AdaServe at its best, and against the best other controller, six workloads.

AdaServe has the constants that a grid search on other workloads found (`adaserve_constants`).
Whoever is compared serves the same seeds. A workload is won where violations are fewer, the
interval of the difference over seeds clear of zero, and goodput is not shown to be less; and the
tails of no class are shown to be worse: neither its p99 TPOT nor its p99 completion time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.adaserve_constants import searched
from benchmarks.adaserve_traces import HORIZON_S
from benchmarks.bench import Bench
from benchmarks.contested_workloads import WORKLOADS
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import (
    Served,
    Table,
    attained,
    compared,
    each,
    goodput,
    is_there,
    need_controller,
    violations,
)
from benchmarks.published_world import World
from eval.metrics import ClassMetrics
from eval.statistics import paired_difference

OURS = "slack-priced"
SEEDS, QUICK_SEEDS = 10, 1
QUICK_LENGTH_S = 60.0
OTHERS = ("sarathi(chunk_tokens=2048)", "chain(4)", "chain(8)", "turbospec",
          "adaptive-verification", "smart")  # fmt: skip
"""Who may be the best other: the strongest of each kind; chains as an engine without the costs of
vLLM 0.8.4 serves them."""
QUICK_OTHERS = ("sarathi(chunk_tokens=2048)", "chain(4)", "chain(8)")
RUN = "slack_priced"
"""The figure that serves; the others are read from its row."""
TAILS: dict[str, Callable[[ClassMetrics], float]] = {
    "p99 TPOT": lambda c: c.tpot_s.p99,
    "p99 completion": lambda c: c.completion_s.p99,
}


def over_adaserve(bench: Bench, _: str) -> Result:
    """Workloads of the six that slack-priced wins against AdaServe with its constants searched."""
    need_controller(OURS)
    best = searched(bench)
    specs = {OURS: OURS, "adaserve": best}
    specs |= {spec: spec for spec in (QUICK_OTHERS if bench.quick else OTHERS) if is_there(spec)}
    worlds: dict[str, World] = {}
    lacking = []
    for name, workload in WORKLOADS.items():
        try:
            worlds[name] = workload(QUICK_LENGTH_S if bench.quick else None)
        except UnmeasuredError as lack:
            lacking.append(f"{name}: {lack}")
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    told: dict[str, Any] = {
        name: {
            "adaserve": difference(bench, table, "adaserve"),
            "best other": difference(bench, table, best_other(table)),
            "attainment": {label: float(attained(runs).mean()) for label, runs in table.items()},
            "violations": {label: violations(runs).tolist() for label, runs in table.items()},
            "goodput": {label: goodput(runs).tolist() for label, runs in table.items()},
        }
        for name, table in compared(worlds, specs, seeds, bench.say, HORIZON_S).items()
    }
    if not told:
        raise UnmeasuredError("; ".join(lacking))
    found = counted(told, "adaserve")
    note = f"AdaServe as {best}; " + found.note
    raw = {"workloads": told, "adaserve": best}
    return Result(found.value, found.text, "; ".join([note, *lacking]), raw)


def from_the_run(bench: Bench, opponent: str) -> Result:
    """The same against the best other controller of each workload."""
    row = bench.rows.get(RUN)
    if row is None or "workloads" not in row.raw:
        raise UnmeasuredError(f"it is read from {RUN}, which has not been measured")
    return counted(row.raw["workloads"], opponent)


def tails(bench: Bench, opponent: str) -> Result:
    """Tails of classes, over the six workloads, that are shown to be worse than the opponent's."""
    row = bench.rows.get(RUN)
    if row is None or "workloads" not in row.raw:
        raise UnmeasuredError(f"it is read from {RUN}, which has not been measured")
    told = row.raw["workloads"]
    worse = [f"{name}: {w}" for name, of in told.items() for w in of[opponent]["worse"]]
    few = any(len(counts) < 2 for of in told.values() for counts in of["violations"].values())
    return Result(
        float(len(worse)),
        str(len(worse)),
        note="; ".join(worse),
        broken="one seed shows nothing" if few else "",
    )


def counted(told: dict[str, Any], opponent: str) -> Result:
    """How many workloads are won, and by how much each."""
    won = sum(of[opponent]["won"] for of in told.values())
    notes = [f"{name}: {of[opponent]['text']}" for name, of in told.items()]
    return Result(float(won), f"{won} of {len(WORKLOADS)}", "; ".join(notes))


def best_other(table: Table) -> str:
    """The contender with the fewest violations beside the two."""
    others = [label for label in table if label not in (OURS, "adaserve")]
    return min(others, key=lambda label: violations(table[label]).sum())


def difference(bench: Bench, table: Table, opponent: str) -> dict[str, Any]:
    """Ours less theirs: violations, goodput, and the tails that are shown to be worse."""
    ours, theirs = table[OURS], table[opponent]
    missed = paired_difference(violations(ours), violations(theirs), bench.rng())
    gained = paired_difference(goodput(ours), goodput(theirs), bench.rng())
    return {
        "opponent": opponent,
        "violations": vars(missed),
        "goodput": vars(gained),
        "won": bool(missed.high < 0 and gained.high >= 0),
        "worse": worse_tails(bench, ours, theirs),
        "text": f"violations {missed.mean:+.1f} [{missed.low:.1f}, {missed.high:.1f}], goodput "
        f"{gained.mean:+.0f} [{gained.low:.0f}, {gained.high:.0f}] against {opponent}",
    }


def worse_tails(bench: Bench, ours: tuple[Served, ...], theirs: tuple[Served, ...]) -> list[str]:
    """Tails of classes whose paired difference lies above zero with its whole interval.

    Who did not end by the horizon counts with it, so that starving somebody shows.
    """
    found = []
    for name in ours[0].metrics.by_class:
        for label, tail in TAILS.items():
            here, there = (
                each(runs, lambda m, tail=tail, name=name: tail(m.by_class[name]))  # type: ignore[misc]
                for runs in (ours, theirs)
            )
            shown = paired_difference(
                np.minimum(here, HORIZON_S), np.minimum(there, HORIZON_S), bench.rng()
            )
            if shown.low > 0:
                found.append(f"{label} of {name} {shown.mean:+.3f} s")
    return found
