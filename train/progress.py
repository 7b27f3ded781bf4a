"""The line that moves while a run trains and compares: a bar in a terminal, plain lines elsewhere.

Shows what it is told and knows no trainer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_EVERY_S = 5.0
PLAIN_WIDTH = 130


class ProgressLine:
    """`train ━━━━━╸━━━  61 %  attainment 91 % · goodput 312 tok/s · … · 0:18 left`.

    Used as a context. On a pipe it prints a plain line every few seconds and one at the end.
    """

    def __init__(self, console: Console, label: str, total: float) -> None:
        """`total` in the units that `update` counts in."""
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = console
        self._label = label
        self._total = total
        self._text = ""
        self._last_plain = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[note]}"),
                console=console,
                transient=False,
            )
            self._task = self._bar.add_task(label, total=total, note="")

    def __enter__(self) -> ProgressLine:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._text:
            self._print()

    def update(self, done: float, *parts: str, left_s: float | None = None) -> None:
        """Move to `done`; `parts` are joined by dots, the time left comes last."""
        words = [part for part in parts if part]
        if left_s is not None:
            words.append(f"{clock(left_s)} left")
        note = " · ".join(words)
        share = min(done / self._total, 1.0) if self._total > 0 else 1.0
        self._text = f"{self._label}  {100 * share:3.0f} %  {note}"
        if self._bar is not None:
            self._bar.update(self._task, completed=min(done, self._total), note=note)
        elif time.monotonic() - self._last_plain >= PLAIN_EVERY_S:
            self._print()

    def _print(self) -> None:
        self._console.print(self._text, soft_wrap=True, highlight=False, markup=False)
        self._console.file.flush()
        self._last_plain = time.monotonic()
        self._text = ""


def new_console() -> Console:
    """The terminal; on a pipe wide enough for the table, which nobody resizes there."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def clock(seconds: float) -> str:
    """Seconds as minutes:seconds."""
    whole = max(round(seconds), 0)
    return f"{whole // 60}:{whole % 60:02d}"
