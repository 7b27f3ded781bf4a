"""Public traces by name: one file a format, and the registry that `--workload NAME:PATH` reads.

A source is written `NAME:PATH` or `NAME:PATH#PART`; a path that ends in .csv needs no name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engine.errors import UserError
from engine.workload.checks import nearest
from engine.workload.traces.adaserve import read_adaserve
from engine.workload.traces.adaspec import read_adaspec
from engine.workload.traces.azure import read_azure
from engine.workload.traces.mooncake import read_mooncake
from engine.workload.traces.plain import read_plain
from engine.workload.traces.servegen import read_servegen
from engine.workload.traces.trace import ArrivalSource, Trace

__all__ = ["READERS", "ArrivalSource", "SourceName", "Trace", "parse_source", "read_source"]


class Reader(NamedTuple):
    """What reads a name's files, the part that the name stands for, and a line for people."""

    read: Callable[[Path, str], ArrivalSource]
    part: str
    summary: str


READERS = {
    "azure": Reader(read_azure, "", "Azure 2023, code and chat on one clock"),
    "azure-code": Reader(read_azure, "code", "Azure 2023, the code service: bursty"),
    "azure-conversation": Reader(read_azure, "conv", "Azure 2023, the chat service: near Poisson"),
    "mooncake": Reader(read_mooncake, "conversation", "Kimi chat, long prompts"),
    "mooncake-synthetic": Reader(read_mooncake, "synthetic", "Mooncake's long-context mix"),
    "adaserve": Reader(read_adaserve, "", "AdaServe's artifact; #TRACE chooses one"),
    "adaspec-code": Reader(read_adaspec, "code", "AdaSpec's times from Azure code, no lengths"),
    "adaspec-conversation": Reader(read_adaspec, "conv", "AdaSpec's times from Azure chat"),
    "adaspec-mooncake": Reader(read_adaspec, "mooncake", "AdaSpec's times from Mooncake"),
    "servegen": Reader(read_servegen, "", "Alibaba's clients, generated; #MODEL chooses one"),
    "csv": Reader(read_plain, "", "arrival_s, prompt_tokens, output_tokens, maybe class"),
}


class SourceName(NamedTuple):
    """A source as it was written, taken apart."""

    reader: str
    path: Path
    part: str

    def __str__(self) -> str:
        return f"{self.reader}:{self.path}" + (f"#{self.part}" if self.part else "")

    @property
    def short(self) -> str:
        """Without the path, as workloads are named in tables."""
        return self.reader + (f"#{self.part}" if self.part else "")


def parse_source(text: str) -> SourceName | None:
    """`NAME:PATH#PART` taken apart; None where the text is no source at all."""
    name, colon, rest = text.partition(":")
    if not (colon and name in READERS):
        if not text.partition("#")[0].endswith((".csv", ".csv.gz")):
            return None
        name, rest = "csv", text
    path, _, part = rest.partition("#")
    return SourceName(name, Path(path), part) if path else None


def read_source(source: SourceName) -> ArrivalSource:
    """The arrivals that a source names. Raises UserError for whatever is wrong with its files."""
    reader = READERS[source.reader]
    if source.part and reader.part:
        raise UserError(f"{source}: {source.reader} is one part already; leave out #{source.part}")
    return reader.read(source.path, source.part or reader.part)


def need_source(text: str) -> SourceName:
    """`parse_source` for a text that must be one; raises UserError."""
    source = parse_source(text)
    if source is None:
        name = text.partition(":")[0]
        raise UserError(
            f"trace is {text!r}; expected NAME:PATH or a .csv file, {nearest(name, READERS)}"
        )
    return source
