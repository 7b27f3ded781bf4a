"""What was measured here: rows of the benchmarks' results files, read as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FILES = ("controllers", "learning")
FORMAT = 1


@dataclass(frozen=True)
class Measured:
    """Rows by figure name, and the command and machine of each by its run."""

    folder: Path
    rows: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def raw(self, name: str, key: str = "") -> Any:
        """A row's own numbers, or one of them; None where it was not measured."""
        raw = self.rows.get(name, {}).get("raw") or None
        return raw if raw is None or not key else raw.get(key)

    def made_with(self, name: str) -> str:
        """Revision and day of a row."""
        started = str(self.rows.get(name, {}).get("run") or "")
        versions = self.runs.get(started, {}).get("versions") or {}
        return f"revision {versions.get('revision')}, {started[:10]}" if started else ""


def read_measured(folder: Path = RESULTS) -> Measured:
    """All rows that are there. Raises UserError for a folder or file that is none of ours."""
    if not folder.is_dir():
        raise UserError(
            f"--results {folder}: no such folder; expected the results of python -m "
            "benchmarks.controllers and python -m benchmarks.learning"
        )
    rows: dict[str, dict[str, Any]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for name in FILES:
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']!r}")
            rows |= data["figures"]
            runs |= data["runs"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} holds no results of format {FORMAT} ({error}); measure again"
            ) from error
    return Measured(folder, rows, runs)
