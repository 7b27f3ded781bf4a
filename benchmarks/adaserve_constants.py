"""AdaServe's open constants by one rule for every replay figure: a search where nothing is shown.

The paper leaves open how many tokens a verification takes (its script for this machine has 512) and
says of c1 and c2 that a grid search found them. Here B (B1 with it), c1 and c2 are those with the
fewest violations, of equals the most goodput, over two workloads that no figure shows: the
artifact's trace of few strict requests, which the paper does not plot, and drawn arrivals of the
paper's usual mix. Their seeds are no seeds of a figure. What a step drafts at most is the script's.
"""

from __future__ import annotations

from itertools import product

from benchmarks.adaserve_traces import (
    DRAFT_TOKENS,
    HORIZON_S,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    world_of,
)
from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import compared, goodput, violations
from benchmarks.published_world import World
from engine.workload import WorkloadConfig

FIGURE = "adaserve_constants"
"""The figure that searches; the others read its row."""
TRACE = "fig10/rps4.0_prop0.1"
MIX = {"coding": 0.6, "chat": 0.2, "summarization": 0.2}
RATE_RPS = 5.6
"""Drawn answers are three quarters as long as the traces', so this is their 4.2 a second."""
SEEDS, LENGTH_S, QUICK_LENGTH_S = 2, 180.0, 60.0
FIRST_SEED = 0
BUDGETS, C1, C2 = (256, 384, 512, 768), (0, 8), (0, 1)
QUICK_GRID = ((384, 0, 0), (512, 0, 0))


def search(bench: Bench, _: str) -> Result:
    """Requests that AdaServe misses with the best of its constants; which those are."""
    grid = QUICK_GRID if bench.quick else tuple(product(BUDGETS, C1, C2))
    specs = [
        f"adaserve(budget_tokens={budget}, verify_tokens={budget}, draft_tokens={DRAFT_TOKENS}, "
        f"c1={c1}, c2={c2})"
        for budget, c1, c2 in grid
    ]
    tables = compared(
        worlds(QUICK_LENGTH_S if bench.quick else LENGTH_S),
        {spec: spec for spec in specs},
        1 if bench.quick else SEEDS,
        bench.say,
        HORIZON_S,
        FIRST_SEED,
    )
    reached = {
        spec: [
            sum(float(violations(table[spec]).sum()) for table in tables.values()),
            sum(float(goodput(table[spec]).mean()) for table in tables.values()),
        ]
        for spec in specs
    }
    best = min(specs, key=lambda spec: (reached[spec][0], -reached[spec][1]))
    missed = [round(count) for count, _ in reached.values()]
    return Result(
        reached[best][0],
        best,
        note=f"{min(missed)} to {max(missed)} requests missed over {len(specs)} settings",
        raw={"adaserve": best, "searched": reached},
    )


def worlds(length_s: float) -> dict[str, World]:
    """What is searched on. Raises UnmeasuredError where the data are not there."""
    traced = world_of(TRACE, length_s)
    drawn = WorkloadConfig(
        name="drawn",
        duration_s=length_s,
        rate_rps=RATE_RPS,
        mix=MIX,
        max_tokens=OUTPUT_TOKENS,
        prompt_tokens=PROMPT_TOKENS,
    )
    return {TRACE: traced, "drawn arrivals": World(drawn, traced.objectives_s)}


def searched(bench: Bench) -> str:
    """AdaServe as the search has it. Raises UnmeasuredError before it was made."""
    row = bench.rows.get(FIGURE)
    if row is None or "adaserve" not in row.raw:
        raise UnmeasuredError(
            f"AdaServe's constants are those of {FIGURE}, which has not been measured; name it "
            "first: --only adaserve_constants"
        )
    return str(row.raw["adaserve"])
