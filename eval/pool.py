"""Work in processes beside this one: what comes back, as it does.

Processes, not threads: serving holds the interpreter. Each computes with one thread, since the
cores are theirs already; they leave signals to the process that began them, and end where that one
is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from engine.errors import UserError

PROCESSES = 2
AHEAD = 2  # tasks handed out for each process: it never waits, and little is left at a stop
THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
Task = TypeVar("Task")
Made = TypeVar("Made")


def each_made(
    do: Callable[[Task], Made],
    tasks: Iterable[Task],
    processes: int = PROCESSES,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Task, Made]]:
    """Every task with what `do`, a function of a module, makes of it, whichever is done first.

    Where `stopped` says so no further task is begun; those under way are finished and come back.
    Raises what one of them raises, and UserError where a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin)
    left, waiting = iter(tasks), dict[Future[Made], Task]()
    threads = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # read when a process begins
    try:
        while True:
            while len(waiting) < processes * AHEAD and not stopped():
                if (task := next(left, None)) is None:
                    break
                waiting[pool.submit(do, task)] = task
            if stopped():
                waiting = {future: task for future, task in waiting.items() if not future.cancel()}
            if not waiting:
                return
            done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            # Those that came to something first: what one raises must not take them along.
            for future in sorted(done, key=lambda of: of.exception() is not None):
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process was killed from outside (the machine may lack memory); what was done before "
            "is kept, and the same command goes on from there"
        ) from error
    finally:  # where one fails, nobody waits for the rest
        pool.shutdown(cancel_futures=True)
        for name, value in threads.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin() -> None:
    """Ctrl-C is the first process's to hear; without it nobody would ever take what is made."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
