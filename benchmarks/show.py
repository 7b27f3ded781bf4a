"""How measured figures are shown: a row as soon as it is known, the table at the end.

On a terminal a status line moves while a figure is measured and the table is drawn with rich; on
a pipe the rows are Markdown, and what is being measured goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

HOLDS = {
    "holds": "yes",
    "missed": "NO",
    "reported": "–",
    "unmeasured": "NO, unmeasured",
    "excused": "unmeasured, excused",
}
STYLES = {"holds": "green", "missed": "bold red", "unmeasured": "bold red", "excused": "yellow"}
HEAD = "| figure | value | bar | holds |\n| --- | --- | --- | --- |"


class Show:
    """Used as a context around the measurements."""

    def __init__(self, console: Console, errors: Console) -> None:
        self.console, self.errors = console, errors
        self._status: Status | None = None

    @classmethod
    def on_this_terminal(cls) -> Show:
        """Standard output and error."""
        from rich.console import Console

        return cls(Console(highlight=False), Console(file=sys.stderr, highlight=False))

    def __enter__(self) -> Show:
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        else:
            self._line(HEAD)
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, figure: Figure) -> None:
        """A figure is being measured from now on."""
        if self._status is None:
            self.errors.print(f"measuring {figure.name}", soft_wrap=True, markup=False)
        else:
            self._status.update(figure.title)

    def progress(self, words: str) -> None:
        """How far it is."""
        if self._status is not None:
            self._status.update(words)

    def row(self, row: Row) -> None:
        """A figure is known."""
        if self._status is None:
            self._line(as_markdown(row))
            return
        from rich.text import Text

        told = Text(f"{HOLDS[row.status]:>4}  ", STYLES.get(row.status, ""))
        told.append(f"{row.title}  {row.value}  ({row.bar}), {row.seconds:.0f} s", "default")
        self.console.print(told)

    def end(self, table: Sequence[Row], fresh: Collection[str], path: Path) -> None:
        """The rest of the table, the notes, what it comes to and where it was written."""
        old = [row for row in table if row.name not in fresh]
        if self.console.is_terminal:
            self.console.print(_drawn(table))
        else:
            for row in old:
                self._line(as_markdown(row))
        self._line("")
        for row in table:
            age = f" (measured {row.run})" if row in old and row.run else ""
            quick = " (quick)" if row.quick else ""
            if row.note or age:
                self._line(f"- {row.title}{quick}{age}: {row.note or 'as before'}")
        failing = [row for row in table if not row.passes]
        kinds = [
            f"{sum(row.status == status for row in failing)} {status}"
            for status in ("missed", "unmeasured")
        ]
        verdict = "every bar holds" if not failing else ", ".join(kinds)
        self._line(f"\n{len(table)} figures: {verdict}. Results: {path}")

    def _line(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)


def as_markdown(row: Row) -> str:
    """The row as a line of a Markdown table."""
    return f"| {row.title} | {row.value} | {row.bar} | {HOLDS[row.status]} |"


def _drawn(table: Sequence[Row]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("figure", "value", "bar", "holds"):
        drawn.add_column(title)
    for row in table:
        holds = Text(HOLDS[row.status], STYLES.get(row.status, ""))
        drawn.add_row(Text(row.title), Text(row.value), Text(row.bar), holds)
    return drawn
