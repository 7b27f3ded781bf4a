"""The arrival times that AdaSpec replays: ten minutes each of Azure code, Azure chat and Mooncake.

They have no lengths, so prompts and answers are the workload's own.

Source: github.com/cerebellumking/AdaSpec, Apache-2.0 (SoCC 2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.errors import UserError
from engine.workload.traces.rows import chosen_part, data_file, read_rows
from engine.workload.traces.trace import Trace, from_first_arrival

CLASSES = {"code": "coding", "conv": "chat", "mooncake": "chat"}


def read_adaspec(path: Path, part: str = "conv") -> Trace:
    """One of the three, `code`, `conv` or `mooncake`. Raises UserError."""
    if part not in CLASSES:
        raise UserError(f"AdaSpec has no part {part!r}; expected {' or '.join(CLASSES)}")
    rows = read_rows(data_file(path, ["arrivals.csv.gz"]), ("kind", "arrival_s"))
    rows = chosen_part(rows, "kind", part, "trace")
    return from_first_arrival(
        Trace(
            name=f"adaspec-{part}",
            arrival_s=rows.times("arrival_s"),
            duration_s=0.0,
            slo_class=np.zeros(len(rows), np.int64),
            class_names=(CLASSES[part],),
        )
    )
