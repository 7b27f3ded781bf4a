"""What a reader needs to do it again: commands, seeds, versions and the machine, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eval.report.blocks import Block, Code, Section, Table, Words
from eval.report.folder import Data, Found
from eval.report.tables import words_cell
from eval.writing import joined


def section(found: Found) -> Section:
    """The last one of the page."""
    commands = [str(d["command"]) for d in found.by_name.values() if d.get("command")]
    blocks: list[Block] = []
    if notes := (found.get("matrix") or {}).get("notes"):
        blocks.append(Words(notes, is_list=True))
    if commands:
        blocks.append(Code(list(dict.fromkeys(commands)), "Typed, in the order of the sections:"))
    head = ["part", "seeds", "revision", "Python", "platform", "hardware"]
    rows = [[words_cell(cell) for cell in _row(n, d)] for n, d in found.by_name.items()]
    blocks.append(Table(head, rows))
    blocks.append(Code(list(_packages(found)), "Packages:"))
    return Section("made-with", "How this was made", "How it was made", "", blocks)


def _row(name: str, data: Data) -> list[str]:
    made: dict[str, Any] = data.get("versions") or {}
    return [
        name,
        spans(data["seeds"]) if isinstance(data.get("seeds"), list) else str(data.get("seed", "–")),
        str(made.get("revision") or "–"),
        str(made.get("python") or "–"),
        str(made.get("platform") or "–"),
        machine(data.get("hardware") or made.get("hardware") or {}),
    ]


def machine(hardware: dict[str, Any]) -> str:
    """Processor, cores, memory and cards in a line."""
    if not hardware:
        return "–"
    words = [str(hardware.get("processor") or "unknown processor")]
    if cores := hardware.get("cores"):
        words.append(f"{cores} cores")
    if size := hardware.get("memory_bytes"):
        words.append(f"{size / 2**30:.0f} GiB")
    if cards := hardware.get("gpus"):
        words.append(joined(cards))
    return ", ".join(words)


def spans(seeds: list[Any]) -> str:
    """1000 to 1019, or the numbers where they do not follow one another."""
    whole = [int(seed) for seed in seeds]
    if len(whole) > 2 and whole == list(range(whole[0], whole[0] + len(whole))):
        return f"{whole[0]} to {whole[-1]}"
    if len(whole) > 8:
        return f"{len(whole)} from {min(whole)} to {max(whole)}"
    return ", ".join(map(str, whole)) or "–"


def _packages(found: Found) -> Iterable[str]:
    versions = {
        name: version
        for data in found.by_name.values()
        for name, version in ((data.get("versions") or {}).get("packages") or {}).items()
        if version
    }
    yield ", ".join(f"{name} {version}" for name, version in versions.items())
