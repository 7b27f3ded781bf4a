"""What overload policies do past capacity: the frontier as its command sweeps it, for a page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Result
from eval.frontier.whole import QUICK_SECONDS, QUICK_SEEDS, SECONDS, SEEDS, Options, swept

FOLDER = Path("runs/evaluation-benchmark/frontier")
AT_MOST = ("attainment", "goodput_tps", "jain", "largest_queue_age_s", "waste")
"""Figures of all classes together that the page shows at the highest demand."""


def measured(bench: Bench, _: str) -> Result:
    """The highest demand that the first controller is shown to meet, without overload policy."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    seeds, seconds = (QUICK_SEEDS, QUICK_SECONDS) if bench.quick else (SEEDS, SECONDS)
    summary = swept(Options(seeds=seeds, seconds=seconds, out=FOLDER), bench.say)
    first = summary["controllers"][0]
    verdict = summary["verdicts"][first]
    load, failed = verdict["feasible"]["load"], summary["failed"]
    extent = (
        f"{len(summary['controllers'])} controllers × {len(summary['overloads'])} overload "
        f"policies × {len(summary['loads'])} demands × {seeds} seeds of {seconds:g} s"
    )
    says = [of["feasible"]["says"] for of in summary["verdicts"].values()]
    says += [of["says"] for of in verdict["policies"].values()]
    return Result(
        value=float("nan") if load is None else load,
        text="none shown" if load is None else f"{load:g} × capacity, {first}",
        note=f"{extent}, in {summary['seconds'] / 60:.1f} min; {'; '.join(says)}",
        raw={
            "extent": extent,
            "most": max(summary["loads"]),
            "rows": _rows(summary),
            "audit": list(verdict["audit"].values()),
            "results": str(FOLDER / "frontier.json"),
        },
        broken=f"{len(failed)} runs failed" if failed else "",
    )


def _rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """By controller and policy, what the highest demand brings."""
    return [
        {
            "controller": controller,
            "overload": overload,
            **{name: max(cells, key=lambda cell: cell["load"])["all"][name] for name in AT_MOST},
        }
        for controller, by_overload in summary["cells"].items()
        for overload, cells in by_overload.items()
    ]
