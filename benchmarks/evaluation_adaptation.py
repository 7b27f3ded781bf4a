"""How long the whole adaptation test takes: eight controllers, seven disturbances, ten seeds.

Sweeps of the oracle included, though they are cached: the first run on a machine pays for them.
Nothing of an earlier run is taken up, or its time would be missing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figures import Result
from eval.adaptation_test.whole import PART, POLICIES, QUICK_SEEDS, SEEDS, Options, tested

FOLDER = Path("runs/evaluation-benchmark/adaptation")


def measured(bench: Bench, _: str) -> Result:
    """Minutes from the first sweep to the written part; quick is shorter and drops nothing."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    summary = tested(Options(seeds=seeds, quick=bench.quick, out=FOLDER), bench.say)
    minutes = summary["seconds"] / 60.0
    count = len(summary["disturbances"])
    extent = f"{len(POLICIES)} controllers × {count} disturbances × {seeds} seeds"
    failed = summary["failed"]
    return Result(
        value=minutes,
        text=f"{minutes:.1f} min",
        note=f"{extent}; {summary['verdicts']['all']['says']}",
        raw={
            "extent": extent,
            "figures": summary["figures"]["all"],
            "verdicts": {name: of["says"] for name, of in summary["verdicts"].items()},
            "results": str(FOLDER / f"{PART}.json"),
        },
        broken=f"{len(failed)} runs failed" if failed else "",
    )
