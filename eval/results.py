"""A comparison's files: results.json for programs, results.md for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.atomic_write import write_atomic
from eval import table
from eval.table import Report
from eval.versions import versions


def write_results(report: Report, folder: Path, served: Mapping[str, Any], command: str) -> None:
    """Write both into `folder`, which is made where it is not there; versions are in the JSON.

    So are `served`, the options of serving that depart from the usual ones, by which `eval.against`
    knows the same test, and the `command` as it was typed.
    """
    made_with = {"served": dict(served), "command": command, "versions": versions()}
    values = {**table.as_json(report), **made_with}
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / "results.json", text + "\n")
    write_atomic(folder / "results.md", table.as_markdown(report))
