"""Work in two processes: what comes back, as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

PROCESSES = 2
Task = TypeVar("Task")
Made = TypeVar("Made")


def each_made(do: Callable[[Task], Made], tasks: Iterable[Task]) -> Iterator[tuple[Task, Made]]:
    """Every task with what `do`, a function of a module, makes of it, whichever is done first.

    Raises what one of them raises.
    """
    pool = ProcessPoolExecutor(PROCESSES, get_context("spawn"))
    try:
        waiting = {pool.submit(do, task): task for task in tasks}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:  # where one fails, nobody waits for the rest
        pool.shutdown(cancel_futures=True)
