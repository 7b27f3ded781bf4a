"""The file of measured figures: read, merged with a later run's, written whole or not at all.

A row belongs to a run, and a run says when, by which command, with which versions and on which
hardware; so a table put together from several runs tells what each line is worth.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Row, unmeasured
from engine.errors import UserError

FORMAT = 1


@dataclass
class Results:
    """Rows by figure name, and the runs that they come from by start."""

    path: Path
    rows: dict[str, Row] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Results:
        """What the file holds, nothing where there is none; UserError for any other file."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(path)
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']!r}")
            rows = {name: Row(name=name, **row) for name, row in data["figures"].items()}
            return cls(path, rows, dict(data["runs"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} holds no results of format {FORMAT} ({error}); "
                "move it away or name another file with --out"
            ) from error

    def add(self, row: Row, run: str, stamp: Mapping[str, Any]) -> None:
        """Put a row in, in place of an earlier one, and write the file."""
        self.rows[row.name] = dataclasses.replace(row, run=run)
        self.runs[run] = dict(stamp)
        used = {row.run for row in self.rows.values()}
        self.runs = {key: value for key, value in self.runs.items() if key in used}
        self.save()

    def table(self, figures: Sequence[Figure]) -> list[Row]:
        """A row for every figure, in order; one that nobody measured says so."""
        return [
            self.rows.get(figure.name) or unmeasured(figure, "not measured yet")
            for figure in figures
        ]

    def save(self) -> None:
        """Write the file beside its place and move it there."""
        figures = {}
        for name, row in self.rows.items():
            figures[name] = dataclasses.asdict(row)
            del figures[name]["name"]
        data = {"format": FORMAT, "runs": self.runs, "figures": figures}
        text = json.dumps(plain(data), indent=1, ensure_ascii=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        staged = self.path.with_name(f"{self.path.name}.tmp")
        try:
            staged.write_text(text, encoding="utf-8")
            os.replace(staged, self.path)
        finally:
            staged.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: NumPy numbers become Python's, what is not finite null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
