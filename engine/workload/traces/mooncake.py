"""Mooncake's traces of Kimi: an hour of production chat, and a synthetic long-context mix.

Reads the published JSONL (`timestamp` in ms, `input_length`, `output_length`) and the CSV made of
it (`kind,arrival_s,prompt_tokens,output_tokens`). Production stamps come in steps of 3 s, so a
window spreads each group over its step; else every replay sees bursts that never were. Chat is
taken for the class `chat`, the synthetic mix of long documents for `summarization`.

Source: github.com/kvcache-ai/Mooncake, Apache-2.0; Qin et al., "Mooncake", FAST 2025.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from engine.errors import UserError
from engine.workload.traces.rows import Rows, chosen_part, data_file, opened, read_rows
from engine.workload.traces.trace import Trace, from_first_arrival

CLASSES = {"conversation": "chat", "synthetic": "summarization"}
STEPS_S = {"conversation": 3.0, "synthetic": 0.0}
KEYS = {
    "timestamp": "arrival_ms",
    "input_length": "prompt_tokens",
    "output_length": "output_tokens",
}


def read_mooncake(path: Path, part: str = "conversation") -> Trace:
    """One of the traces, `conversation` or `synthetic`. Raises UserError."""
    if part not in CLASSES:
        raise UserError(f"Mooncake has no part {part!r}; expected {' or '.join(CLASSES)}")
    file = data_file(path, ["arrivals.csv.gz", f"{part}_trace.jsonl"])
    if file.suffix == ".jsonl" or file.name.endswith(".jsonl.gz"):
        rows = _published(file)
        arrival_s = rows.numbers("arrival_ms", "milliseconds") / 1e3
        rows.need_sorted("arrival_ms", arrival_s)
    else:
        rows = read_rows(file, ("kind", "arrival_s", "prompt_tokens", "output_tokens"))
        rows = chosen_part(rows, "kind", part, "trace")
        arrival_s = rows.times("arrival_s")
    return from_first_arrival(
        Trace(
            name=f"mooncake-{part}",
            arrival_s=arrival_s,
            duration_s=0.0,
            prompt_tokens=rows.tokens("prompt_tokens"),
            output_tokens=rows.tokens("output_tokens"),
            slo_class=np.zeros(len(rows), np.int64),
            class_names=(CLASSES[part],),
            step_s=STEPS_S[part],
        )
    )


def _published(file: Path) -> Rows:
    """The JSONL lines as columns of text."""
    cells: dict[str, list[str]] = {name: [] for name in KEYS.values()}
    lines: list[int] = []
    with opened(file) as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                values = {name: str(record[key]) for key, name in KEYS.items()}
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise UserError(
                    f"{file}, line {number} is no request: expected a JSON object with "
                    f"{', '.join(KEYS)}"
                ) from error
            lines.append(number)
            for name, value in values.items():
                cells[name].append(value)
    if not lines:
        raise UserError(f"{file} is empty; expected one JSON object a line")
    return Rows(file, np.array(lines, np.int64), cells)
