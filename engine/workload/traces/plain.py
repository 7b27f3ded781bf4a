"""Plain CSV: `arrival_s`, `prompt_tokens`, `output_tokens` and, if there, `class`.

The format for one's own traces. Times are seconds in order, on any clock that starts at 0 or later.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import UserError
from engine.workload.traces.rows import chosen_part, data_file, read_rows
from engine.workload.traces.trace import Trace, from_first_arrival, indexed

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


def read_plain(path: Path, part: str = "") -> Trace:
    """The trace in a CSV file; an empty class is drawn from the workload's mix.

    `part` names a class to keep, "" keeps all. Raises UserError.
    """
    rows = read_rows(data_file(path, ["arrivals.csv", "arrivals.csv.gz"]), COLUMNS, ["class"])
    rows.times("arrival_s")  # in order as a whole, not only the part
    if part and "class" not in rows.cells:
        raise UserError(f"{rows.path} has no column class; expected one to choose {part!r} from")
    if part:
        rows = chosen_part(rows, "class", part, "class")
    slo_class, names = indexed(rows.cells.get("class"))
    return from_first_arrival(
        Trace(
            name="csv",
            arrival_s=rows.times("arrival_s"),
            duration_s=0.0,
            prompt_tokens=rows.tokens("prompt_tokens"),
            output_tokens=rows.tokens("output_tokens"),
            slo_class=slo_class,
            class_names=names,
        )
    )
