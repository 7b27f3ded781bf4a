"""A results folder: for each part that was run PART.parquet with its rows and PART.json beside it.

The JSON is the summary that `eval.report` shows: every figure with its interval, verdicts in words,
and what it was made with. It is written last and names the digest of its rows, so that a kill
between the two is noticed. What the figures mean is each part's own business.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.statistics import Interval
from eval.versions import versions
from eval.writing import plain

if TYPE_CHECKING:
    import pyarrow

PARTS = ("matrix", "adaptation", "frontier", "lossless")
SCHEMA = 1
MADE_WITH = ("revision", "python", "packages")
"""Of the versions: what all parts of a folder must share. Platform and hardware are shown."""
Rows: TypeAlias = "pyarrow.Table | Iterable[Mapping[str, Any]]"


@dataclass(frozen=True)
class Part:
    """A part as it was read: its summary as plain data and its rows as a Parquet table."""

    name: str
    summary: dict[str, Any]
    table: pyarrow.Table

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dictionary a row; for a matrix of many cells take `table` instead."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found


def write_part(
    folder: Path,
    name: str,
    rows: Rows,
    summary: Mapping[str, Any],
    seeds: Sequence[int],
    command: str,
    complete: bool = True,
    made_with: Mapping[str, Any] | None = None,
) -> None:
    """Write both files of the part; `summary` gets what the result was made with on top.

    `rows` are dictionaries (a key that a row lacks is null there) or a Parquet table, `command` is
    what a reader types to get the same, `made_with` the versions that served it, None: those here
    and now. What is not finite stays so in the rows and becomes null in the summary. Raises
    ValueError for a part of no known name, UserError where nothing can be written.
    """
    if name not in PARTS:
        raise ValueError(f"no part is called {name!r}; expected one of {', '.join(PARTS)}")
    content = parquet(rows)
    served_by = dict(made_with or versions())
    hardware = served_by.pop("hardware")
    header = {
        "part": name,
        "schema": SCHEMA,
        "complete": complete,
        "command": command,
        "seeds": list(seeds),
        "versions": served_by,
        "hardware": hardware,
        "rows_digest": _digest(content),
    }
    text = json.dumps(plain({**header, **summary}), indent=1, ensure_ascii=False, allow_nan=False)
    try:
        write_atomic(folder / f"{name}.parquet", content)
        write_atomic(folder / f"{name}.json", text + "\n")
    except OSError as error:
        raise UserError(
            f"--out {folder}: {name} cannot be written there ({error.strerror}); name a folder "
            "with free space that you may write to"
        ) from error


def read_part(folder: Path, name: str) -> Part:
    """The part of that name; UserError where it is missing, unfinished or not of one piece."""
    import pyarrow
    from pyarrow import parquet as files

    summary = read_summary(folder / f"{name}.json")
    path = folder / f"{name}.parquet"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: the rows of {name} cannot be read ({error.strerror}); run {name} again"
        ) from error
    if _digest(content) != summary["rows_digest"]:
        raise UserError(
            f"{path} is not the file that {name}.json was written with: the set is of two runs or "
            f"was cut; run {name} again"
        )
    return Part(name, summary, files.read_table(pyarrow.BufferReader(content)))


def refuse_mixed(folder: Path, versions_of: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise UserError where two results, by name, were made by different versions.

    Of DraftGym, Python or a package: their figures are not to be set side by side.
    """
    made = list(versions_of.items())
    for name, of in made[1:]:
        first, of_first = made[0]
        if differs := differing(of_first, of):
            raise UserError(
                f"{folder} is of mixed versions: {first} and {name} differ in {differs}; run one "
                "of them again, so that both are of one version"
            )


def read_summary(path: Path) -> dict[str, Any]:
    """PART.json as it stands; UserError for anything but the whole summary of a finished part."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as results ({error}); expected what a finished run wrote"
        ) from error
    if not isinstance(data, dict) or data.get("part") != path.stem:
        raise UserError(f"{path} holds no results of a part called {path.stem}; run it again")
    if data.get("schema") != SCHEMA:
        raise UserError(
            f"{path} has schema {data.get('schema')} and this version reads {SCHEMA}; run "
            f"{path.stem} again with this version"
        )
    if data.get("complete") is not True:
        raise UserError(
            f"{path} is unfinished; run its command again, which goes on where it was cut: "
            f"{data.get('command')}"
        )
    return data


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """In what two results' `versions` differ that must be the same, in words; "" in nothing."""

    def flat(of: Mapping[str, Any]) -> dict[str, Any]:
        chosen = {key: of.get(key) for key in MADE_WITH}
        packages = chosen.pop("packages") or {}
        return {**chosen, **packages}

    mine, theirs = flat(one), flat(other)
    names = [n for n in sorted(mine.keys() | theirs.keys()) if mine.get(n) != theirs.get(n)]
    return ", ".join(f"{n} ({mine.get(n)} and {theirs.get(n)})" for n in names)


def figure(
    interval: Interval, least: float = -math.inf, most: float = math.inf
) -> dict[str, float]:
    """A figure with its interval, as summaries hold it, no further than the figure can go."""
    bounded = interval.within(least, most)
    return {"value": bounded.mean, "low": bounded.low, "high": bounded.high}


def typed(command: str, arguments: Sequence[str]) -> str:
    """What a reader types: `python evaluate.py` with its arguments, quoted where needed."""
    return shlex.join(["python", *command.split(), *arguments])


def parquet(rows: Rows) -> bytes:
    """The rows as a Parquet file's bytes; columns of dictionaries come in order of appearance."""
    import pyarrow
    from pyarrow import parquet as files

    if not isinstance(rows, pyarrow.Table):
        listed = list(rows)
        names = list(dict.fromkeys(key for row in listed for key in row))
        rows = pyarrow.table({name: [row.get(name) for row in listed] for name in names})
    sink = pyarrow.BufferOutputStream()
    files.write_table(rows, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
