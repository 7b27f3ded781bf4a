"""How long the whole adaptation test takes: eight controllers, seven disturbances, ten seeds.

Sweeps are counted, of the oracle and of the best fixed tree, as on a machine that never ran the
test: the cache is empty, and nothing of an earlier run is taken up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figures import Result
from eval.adaptation_test.whole import PART, POLICIES, QUICK_SEEDS, SEEDS, Options, tested

FOLDER = Path("runs/evaluation-benchmark/adaptation")
CACHE = "DRAFTGYM_CACHE"


def measured(bench: Bench, _: str) -> Result:
    """Minutes from the first sweep to the written part; quick is shorter and drops nothing."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    with empty_cache():
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
            "regret": {
                name: {controller: of["regret"] for controller, of in by_controller.items()}
                for name, by_controller in summary["figures"].items()
            },
            "titles": {name: of["title"] for name, of in summary["disturbances"].items()},
            "verdicts": {name: of["says"] for name, of in summary["verdicts"].items()},
            "results": str(FOLDER / f"{PART}.json"),
        },
        broken=f"{len(failed)} runs failed" if failed else "",
    )


@contextmanager
def empty_cache() -> Iterator[Path]:
    """A cache of its own meanwhile, for this process and those that it begins."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(prefix="draftgym-adaptation-") as folder:
        os.environ[CACHE] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[CACHE]
            else:
                os.environ[CACHE] = before
