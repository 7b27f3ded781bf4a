"""metrics.csv: what training logged, metrics.jsonl, as one table, so that no report parses events.

A row for every logging, a column for every figure that was ever logged, empty where it was not.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from engine.atomic_write import write_atomic

FIRST = ("step", "time")


def write_csv(lines: Path, table: Path) -> None:
    """Write the JSON objects of `lines`, one a line, as the rows of `table`."""
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    columns = [*FIRST, *sorted({key for row in rows for key in row} - {*FIRST})]
    content = io.StringIO()
    writer = csv.DictWriter(content, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(table, content.getvalue())
