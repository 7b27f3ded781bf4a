"""Slack-priced against AdaServe at its best, and against the best other controller, six workloads.

AdaServe is given what its paper leaves open, found by grid search on another trace: the budget of a
verification, c1 and c2. Whoever is compared serves the same seeds. A workload is won where
violations are fewer, the interval of the difference over seeds clear of zero, and goodput is not
shown to be less; and the tails of no class are shown to be worse: neither its p99 TPOT nor its p99
completion time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from benchmarks.adaserve_traces import HORIZON_S
from benchmarks.bench import Bench
from benchmarks.contested_workloads import WORKLOADS, tuning
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import (
    Served,
    Table,
    attained,
    compared,
    each,
    goodput,
    need_controller,
    violations,
)
from engine.errors import UserError
from eval.metrics import ClassMetrics
from eval.statistics import paired_difference
from policies import registry

OURS = "slack-priced"
SEEDS, QUICK_SEEDS = 10, 1
QUICK_LENGTH_S = 60.0
TUNING_SEEDS, TUNING_LENGTH_S = 2, 180.0
FIRST_TUNING_SEED = 0  # no seed of a comparison
BUDGETS, C1, C2 = (256, 384, 512, 768), (0, 8), (0, 1)
QUICK_GRID = ((384, 0, 0), (512, 0, 0))
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
    best, searched = searched_adaserve(bench)
    specs = {OURS: OURS, "adaserve": best}
    specs |= {spec: spec for spec in (QUICK_OTHERS if bench.quick else OTHERS) if _is_there(spec)}
    told: dict[str, Any] = {}
    lacking = []
    for name, workload in WORKLOADS.items():
        try:
            world = workload(QUICK_LENGTH_S if bench.quick else None)
        except UnmeasuredError as lack:
            lacking.append(f"{name}: {lack}")
            continue
        seeds = QUICK_SEEDS if bench.quick else SEEDS
        table = compared(world, specs, seeds, bench.say, HORIZON_S)
        told[name] = {
            "adaserve": difference(bench, table, "adaserve"),
            "best other": difference(bench, table, best_other(table)),
            "attainment": {label: float(attained(runs).mean()) for label, runs in table.items()},
            "violations": {label: violations(runs).tolist() for label, runs in table.items()},
            "goodput": {label: goodput(runs).tolist() for label, runs in table.items()},
        }
    if not told:
        raise UnmeasuredError("; ".join(lacking))
    found = counted(told, "adaserve")
    note = f"AdaServe as {best}, searched on another trace; " + found.note
    raw = {"workloads": told, "adaserve": best, "searched": searched}
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


def searched_adaserve(bench: Bench) -> tuple[str, dict[str, list[float]]]:
    """AdaServe with the constants that miss fewest, of equals with most goodput; all that were
    tried.
    """
    grid = QUICK_GRID if bench.quick else tuple(product(BUDGETS, C1, C2))
    specs = [
        f"adaserve(budget_tokens={budget}, verify_tokens={budget}, draft_tokens=96, c1={c1}, "
        f"c2={c2})"
        for budget, c1, c2 in grid
    ]
    table = compared(
        tuning(QUICK_LENGTH_S if bench.quick else TUNING_LENGTH_S),
        {spec: spec for spec in specs},
        1 if bench.quick else TUNING_SEEDS,
        lambda words: bench.say(f"searching AdaServe's constants, {words}"),
        HORIZON_S,
        FIRST_TUNING_SEED,
    )
    reached = {
        spec: [float(violations(runs).sum()), float(goodput(runs).mean())]
        for spec, runs in table.items()
    }
    return min(specs, key=lambda spec: (reached[spec][0], -reached[spec][1])), reached


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


def _is_there(spec: str) -> bool:
    try:
        registry.make(spec)
    except UserError:
        return False
    return True
