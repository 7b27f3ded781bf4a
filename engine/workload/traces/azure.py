"""Azure's LLM inference trace of 2023: a code and a chat service, the same 58 minutes.

Reads the files as Azure publishes them (`TIMESTAMP,ContextTokens,GeneratedTokens`, one file a
service) and the one that puts both on one clock (`kind,arrival_s,prompt_tokens,output_tokens`).
Stamps have no time zone; only their differences count. No classes of service are in it: code is
taken for `coding`, conversation for `chat`.

Source: github.com/Azure/AzurePublicDataset, CC-BY 4.0; Patel et al., "Splitwise", ISCA 2024.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats
from engine.workload.traces.rows import Rows, chosen_part, data_file, header_of, read_rows
from engine.workload.traces.trace import Trace, from_first_arrival, indexed

JOINED = "arrivals.csv.gz"
PUBLISHED = "AzureLLMInferenceTrace_{}.csv"
CLASSES = {"code": "coding", "conv": "chat"}


def read_azure(path: Path, part: str = "") -> Trace:
    """One service, `code` or `conv`, or "" for both on one clock. Raises UserError."""
    kinds = [part] if part else list(CLASSES)
    if part not in ("", *CLASSES):
        raise UserError(f"the Azure trace has no part {part!r}; expected {' or '.join(CLASSES)}")
    if path.is_dir() and not (path / JOINED).is_file():
        files = [data_file(path, [PUBLISHED.format(kind), JOINED]) for kind in kinds]
        return _joined([_published(file) for file in files], kinds)
    file = data_file(path, [JOINED])
    if "TIMESTAMP" in header_of(file):
        if not part:
            raise UserError(f"{file} is one service; say azure-code or azure-conversation")
        return _joined([_published(file)], kinds)
    rows = read_rows(file, ("kind", "arrival_s", "prompt_tokens", "output_tokens"))
    parts = [chosen_part(rows, "kind", kind, "service") for kind in kinds]
    return _joined([(part, part.times("arrival_s")) for part in parts], kinds)


def _published(file: Path) -> tuple[Rows, Floats]:
    """Rows with our column names, and seconds since an arbitrary moment."""
    rows = read_rows(file, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
    stamps = np.empty(len(rows))
    first: datetime | None = None
    for i, cell in enumerate(rows.cells["TIMESTAMP"]):
        try:
            stamp = datetime.fromisoformat(cell.strip()).replace(tzinfo=None)
        except ValueError as error:
            raise UserError(
                f"{file}, line {rows.lines[i]}: TIMESTAMP is {cell!r}; expected a date and time as "
                "2023-11-16 18:15:46.6805900"
            ) from error
        first = first or datetime(stamp.year, stamp.month, stamp.day)
        stamps[i] = (stamp - first).total_seconds()
    rows.need_sorted("TIMESTAMP", stamps)
    renamed = {"ContextTokens": "prompt_tokens", "GeneratedTokens": "output_tokens"}
    return Rows(file, rows.lines, {renamed.get(k, k): v for k, v in rows.cells.items()}), stamps


def _joined(parts: list[tuple[Rows, Floats]], kinds: list[str]) -> Trace:
    """The services' requests on one clock, in order."""
    classes = [
        CLASSES[kind] for kind, (rows, _) in zip(kinds, parts, strict=True) for _ in rows.lines
    ]
    arrival_s = np.concatenate([times_s for _, times_s in parts])
    slo_class, names = indexed(classes)
    together = Trace(
        name=f"azure-{kinds[0]}" if len(kinds) == 1 else "azure",
        arrival_s=arrival_s,
        duration_s=0.0,
        prompt_tokens=np.concatenate([rows.tokens("prompt_tokens") for rows, _ in parts]),
        output_tokens=np.concatenate([rows.tokens("output_tokens") for rows, _ in parts]),
        slo_class=slo_class,
        class_names=names,
    )
    return from_first_arrival(together.picked(np.argsort(arrival_s, kind="stable")))
