"""How a long fetch shows itself: a bar on a terminal, one plain line on a pipe.

What is being fetched, and the counting of it, is the caller's. Everything goes to stderr, so that
a command's output stays clean.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def say(line: str) -> None:
    """Print one line about progress to stderr."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress(label: str, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Yield `update(done_bytes)`. Without a total the bar is a spinner with a byte count."""
    if not sys.stderr.isatty():
        say(label if total_bytes is None else f"{label} ({total_bytes / 1e6:.1f} MB)")
        yield lambda done_bytes: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    shape: list[ProgressColumn] = (
        [SpinnerColumn()] if total_bytes is None else [BarColumn(), TimeRemainingColumn()]
    )
    columns = [TextColumn("{task.description}"), *shape, DownloadColumn()]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total_bytes)
        yield lambda done_bytes: bar.update(task, completed=done_bytes)
