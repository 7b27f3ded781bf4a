"""A comparison's files: results.json for programs, results.md for people."""

from __future__ import annotations

import json
from pathlib import Path

from engine.atomic_write import write_atomic
from eval import table
from eval.table import Report
from eval.versions import versions


def write_results(report: Report, folder: Path) -> None:
    """Write both into `folder`, which is made where it is not there; versions are in the JSON."""
    values = {**table.as_json(report), "versions": versions()}
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / "results.json", text + "\n")
    write_atomic(folder / "results.md", table.as_markdown(report))
