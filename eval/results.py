"""A comparison's files: results.json for programs, .parquet for tables of runs, .md for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from engine.atomic_write import write_atomic
from eval import table
from eval.parts import parquet
from eval.runner import Comparison, Run
from eval.table import Report
from eval.versions import versions

ALL = "all"
"""In the place of a class: all requests of a run together."""


def write_results(report: Report, folder: Path, served: Mapping[str, Any], command: str) -> None:
    """Write all into `folder`, which is made where it is not there; versions are in the JSON.

    So are `served`, the options of serving that depart from the usual ones, by which `eval.against`
    knows the same test, and the `command` as it was typed.
    """
    made_with = {"served": dict(served), "command": command, "versions": versions()}
    values = {**table.as_json(report), **made_with}
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / "results.parquet", parquet(list(rows_of(report.comparison))))
    write_atomic(folder / "results.md", table.as_markdown(report))
    write_atomic(folder / "results.json", text + "\n")


def rows_of(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """A row a run and class, the one of `all` first, which alone has what the engine cost."""
    for runs in comparison.runs.values():
        for run in runs:
            place = {"controller": run.controller, "seed": run.seed}
            metrics = asdict(run.metrics)
            by_class = metrics.pop("by_class")
            yield {**place, "slo_class": ALL, **metrics, **_of_engine(run)}
            for name, of in by_class.items():
                yield {**place, "slo_class": name, **_flat(of)}


def _of_engine(run: Run) -> dict[str, Any]:
    settings = {f"engine_{name}": value for name, value in run.settings.items()}
    left_out = ("controller", "seed", "metrics", "settings")
    figures = {f.name: getattr(run, f.name) for f in fields(run) if f.name not in left_out}
    return {**figures, **settings}


def _flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Percentiles as columns of their own, such as tpot_s_p95."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            found |= {f"{name}_{part}": of for part, of in value.items()}
        else:
            found[name] = value
    return found
