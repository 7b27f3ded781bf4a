"""The arrival traces of AdaServe's artifact: six minutes of coding, chat and summarization each.

One file holds many, named by figure and setting; one must be chosen. The objectives in it are left
out: they are ratios to the artifact's machine, and here a class table sets them.

Source: github.com/zikun-li/AdaServe-Artifact-Evaluation, Apache-2.0 (EuroSys 2026).
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import UserError
from engine.workload.traces.rows import chosen_part, data_file, read_rows
from engine.workload.traces.trace import Trace, from_first_arrival, indexed

COLUMNS = ("trace", "arrival_s", "prompt_tokens", "output_tokens", "slo_class")


def read_adaserve(path: Path, part: str = "") -> Trace:
    """The trace named `part`, which may be "" where the file has one only. Raises UserError."""
    rows = read_rows(data_file(path, ["arrivals.csv.gz"]), COLUMNS)
    there = sorted(set(rows.cells["trace"]))
    if not part and len(there) > 1:
        raise UserError(
            f"{rows.path} holds {len(there)} traces; choose one as "
            f"adaserve:{path}#{there[0]}, of {', '.join(there)}"
        )
    chosen = chosen_part(rows, "trace", part or there[0], "trace")
    slo_class, names = indexed(chosen.cells["slo_class"])
    return from_first_arrival(
        Trace(
            name="adaserve",
            arrival_s=chosen.times("arrival_s"),
            duration_s=0.0,
            prompt_tokens=chosen.tokens("prompt_tokens"),
            output_tokens=chosen.tokens("output_tokens"),
            slo_class=slo_class,
            class_names=names,
        )
    )
