"""Prompts by class: the set that ships with the project, or one's own by path.

Reads JSONL (`.gz` too); turning text into tokens is left to `build`. The shipped texts lie in
`prompts/`, which holds data only.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.workload.checks import nearest

SHIPPED = Path(__file__).resolve().parent / "prompts"
SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class PromptSet:
    """Texts by class name."""

    source: str
    by_class: dict[str, tuple[str, ...]]

    @classmethod
    def load(cls, path: str | Path | None = None, default_class: str | None = None) -> PromptSet:
        """Read a JSONL file or a folder of them; None is the shipped set.

        A line is an object with `prompt`, or with `turns` of which the first counts, and maybe
        `class`. Without `class` it belongs to `default_class`, else, in a folder, to the class
        that its file is named after. UserError names file and line of what cannot be read.
        """
        where = SHIPPED if path is None else Path(path)
        if where.is_dir():
            files = sorted(p for p in where.iterdir() if p.is_file() and p.name.endswith(SUFFIXES))
            if not files:
                raise UserError(f"{where} holds no .jsonl or .jsonl.gz file; expected prompts")
        elif where.is_file():
            files = [where]
        else:
            raise UserError(f"no prompts at {where}; expected a JSONL file or a folder of them")
        found: dict[str, list[str]] = {}
        for file in files:
            fallback = default_class
            if fallback is None and where.is_dir():
                fallback = file.name.removesuffix(".gz").removesuffix(".jsonl")
            for name, text in _read(file, fallback):
                found.setdefault(name, []).append(text)
        if not found:
            raise UserError(f"{where} holds no prompts; expected one JSON object a line")
        return cls(str(where), {name: tuple(texts) for name, texts in found.items()})

    def of(self, name: str) -> tuple[str, ...]:
        """The texts of class `name`; UserError when there are none."""
        if not self.by_class.get(name):
            raise UserError(
                f"{self.source} has no prompts of the class {name!r}; "
                f"{nearest(name, self.by_class)}; give its lines a `class`, or mix without it"
            )
        return self.by_class[name]


def _read(path: Path, fallback: str | None) -> Iterator[tuple[str, str]]:
    """Class and text of each line; blank lines are passed over."""
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _parsed(line, f"{path}, line {number}", fallback)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the prompts in {path}: {error}") from error


def _parsed(line: str, where: str, fallback: str | None) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{where} is no JSON object; expected one with `prompt` or `turns`")
    text = _text(record, where)
    name = record.get("class", fallback)
    if not isinstance(name, str) or not name:
        raise UserError(
            f"{where} has {'no class' if name is None else f'the class {name!r}'}; expected "
            "`class` with a name, a default class, or a folder with a file for each class"
        )
    return name, text


def _text(record: dict[str, Any], where: str) -> str:
    if "prompt" in record:
        text = record["prompt"]
    elif isinstance(record.get("turns"), list) and record["turns"]:
        text = record["turns"][0]
    else:
        raise UserError(f"{where} has neither `prompt` nor a first turn in `turns`")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{where} has the prompt {text!r}; expected a text that is not empty")
    return text
