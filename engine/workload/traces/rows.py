"""Rows of a CSV file, `.gz` or not, as columns; whatever is wrong is told with its line.

Knows text, numbers and order; which columns a format has is its reader's business.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Floats, Ints
from engine.workload.checks import nearest

MAX_TOKENS = 100_000_000  # of one request; more is a slip in the units


@dataclass(frozen=True, eq=False)
class Rows:
    """Columns of text, all of one length, and the line of the file that each row stands on."""

    path: Path
    lines: Ints  # [n]
    cells: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, chosen: Bools) -> Rows:
        """The rows of a mask [n]."""
        at = np.flatnonzero(chosen).tolist()
        cells = {name: [column[i] for i in at] for name, column in self.cells.items()}
        return Rows(self.path, self.lines[chosen], cells)

    def equal(self, column: str, value: str) -> Bools:
        """[n] where a column holds that text."""
        return np.array([cell == value for cell in self.cells[column]], np.bool_)

    def numbers(self, column: str, unit: str, low: float = 0.0) -> Floats:
        """[n] finite numbers from `low`. Raises UserError with the line of the first that is not.

        `unit` names them in that sentence.
        """
        try:
            values = np.array(self.cells[column], np.float64)
        except ValueError:
            values = np.array([_float(cell) for cell in self.cells[column]])
        wrong = ~(np.isfinite(values) & (values >= low))
        if wrong.any():
            self._refuse(column, wrong, f"a number of {unit} from {low:g}")
        return values

    def tokens(self, column: str) -> Ints:
        """[n] whole numbers of tokens from 0."""
        values = self.numbers(column, "tokens")
        wrong = (values != np.floor(values)) | (values > MAX_TOKENS)
        if wrong.any():
            self._refuse(column, wrong, f"a whole number of tokens up to {MAX_TOKENS:,}")
        return values.astype(np.int64)

    def times(self, column: str) -> Floats:
        """[n] seconds from 0 that never go back."""
        values = self.numbers(column, "seconds")
        self.need_sorted(column, values)
        return values

    def need_sorted(self, column: str, values: Floats) -> None:
        """Raise UserError with the line of the first value [n] that is below the one before it."""
        back = np.flatnonzero(np.diff(values) < 0)
        if len(back):
            at = int(back[0]) + 1
            raise UserError(
                f"{self.path}, line {self.lines[at]}: {column} is {self.cells[column][at]} after "
                f"{self.cells[column][at - 1]}; expected times in order, so sort the rows by it"
            )

    def _refuse(self, column: str, wrong: Bools, expected: str) -> None:
        at = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{self.path}, line {self.lines[at]}: {column} is {self.cells[column][at]!r}; "
            f"expected {expected}"
        )


def read_rows(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> Rows:
    """The named columns of a CSV file with a header line; others are passed over.

    Raises UserError for a file that cannot be read, has no rows, lacks a column, names one twice,
    or holds a row of another length.
    """
    with opened(path) as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise UserError(f"{path} is empty; expected a header with {', '.join(columns)}")
        places = {name: _place(path, header, name) for name in columns}
        places |= {name: header.index(name) for name in optional if name in header}
        found: list[list[str]] = []
        lines: list[int] = []
        try:
            for row in reader:
                if not row:
                    continue  # a blank line
                if len(row) != len(header):
                    raise UserError(
                        f"{path}, line {reader.line_num} has {len(row)} cells; expected "
                        f"{len(header)}, as many as the header"
                    )
                found.append(row)
                lines.append(reader.line_num)
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num} is no CSV: {error}") from error
    if not found:
        raise UserError(f"{path} has a header but no rows; expected one row a request")
    cells = {name: [row[at] for row in found] for name, at in places.items()}
    return Rows(path, np.array(lines, np.int64), cells)


def header_of(path: Path) -> list[str]:
    """The column names in the first line, none where the file is empty."""
    with opened(path) as file:
        return [name.strip() for name in next(csv.reader(file), [])]


def data_file(path: Path, names: Sequence[str]) -> Path:
    """`path` itself, or the first of `names` that is there where it is a folder."""
    if path.is_file():
        return path
    if path.is_dir():
        for name in names:
            if (path / name).is_file():
                return path / name
        raise UserError(f"{path} holds no {' or '.join(names)}; name the file or its folder")
    raise UserError(f"there is nothing at {path}; expected {names[0]} or the folder that holds it")


def chosen_part(rows: Rows, column: str, part: str, hint: str) -> Rows:
    """The rows whose `column` says `part`; UserError names what there is."""
    chosen = rows.equal(column, part)
    if not chosen.any():
        there = sorted(set(rows.cells[column]))
        raise UserError(f"{rows.path} has no {hint} {part!r}; {nearest(part, there)}")
    return rows.where(chosen)


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """The file as text; a byte order mark is passed over, what cannot be read is a UserError."""
    open_text: Callable[..., IO[str]] = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def _place(path: Path, header: Sequence[str], name: str) -> int:
    if header.count(name) > 1:
        raise UserError(f"{path} names the column {name} twice; expected it once")
    if name not in header:
        raise UserError(f"{path} lacks the column {name}; {nearest(name, header)}")
    return header.index(name)


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
