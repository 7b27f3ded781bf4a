"""Every controller and wrapper in one table: what it needs, whether it is lossless, whose it is.

`python evaluate.py --list` prints it, other packages' controllers included; `python -m
policies.listing` writes DraftGym's own into docs/controllers.md. The classes are asked, which speak
of their defaults: to make controllers would compile the kernels of all of them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.errors import UserError
from policies.registry import ENTRIES, WRAPPERS, Entry, class_of, offered

PAGE = Path(__file__).resolve().parents[1] / "docs" / "controllers.md"
BEGIN, END = "<!-- written by python -m policies.listing -->\n", "<!-- end of what it writes -->\n"
AS_WRAPPED = "as wrapped"


class Row(NamedTuple):
    """A line of the table."""

    name: str
    needs: str
    lossless: str
    summary: str
    source: str


def own_rows() -> list[Row]:
    """DraftGym's controllers by name, then its wrappers."""
    rows = [_row(name, entry) for name, entry in sorted(ENTRIES.items())]
    return rows + [
        Row(f"{name}:…", AS_WRAPPED, AS_WRAPPED, entry.summary, entry.source)
        for name, entry in sorted(WRAPPERS.items())
    ]


def rows() -> list[Row]:
    """The same and, behind them, what other installed packages offer.

    Raises UserError where one of those takes a name of ours; one that cannot be imported says so.
    """
    others = []
    for name, entry in offered().items():
        try:
            others.append(_row(name, entry))
        except UserError as error:
            others.append(Row(name, "?", "?", f"cannot be loaded: {error}", entry.source))
    return own_rows() + others


def as_text(table: Iterable[Row]) -> str:
    """Columns for a terminal."""
    lines = [Row("name", "needs", "lossless", "what it does", "source"), *table]
    # The longest column stands last, so that a narrow terminal breaks that one only.
    ordered = [(row.name, row.needs, row.lossless, row.source, row.summary) for row in lines]
    widths = [max(map(len, column)) for column in zip(*ordered, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in ordered
    )


def as_markdown(table: Iterable[Row]) -> str:
    """The same for a page."""
    lines = [
        "| Name | Needs | Lossless | What it does | Source |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in table:
        lines.append(f"| `{row.name}` | {' | '.join(row[1:])} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page's text with the table as it is now. Raises UserError without a place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"the page has no lines {BEGIN!r} and {END!r} between which a table goes")
    return before + BEGIN + as_markdown(own_rows()) + END + after


def _row(name: str, entry: Entry) -> Row:
    kind = class_of(entry)
    needs = [what for what in ("profile", "divergence") if getattr(kind, f"needs_{what}")]
    summary = entry.summary or (inspect.getdoc(kind) or "").partition("\n")[0]
    return Row(
        name,
        ", ".join(needs) or "nothing",
        "yes" if kind.lossless else "no",
        summary,
        entry.source,
    )


def main() -> None:
    """Bring the table on the page up to date."""
    fresh = PAGE.with_name(f".{PAGE.name}.new")
    fresh.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    os.replace(fresh, PAGE)


if __name__ == "__main__":
    main()
