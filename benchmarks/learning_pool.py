"""Many pieces of work in two processes, each kept when it is done: one that was cut goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from benchmarks.bench import Bench
from benchmarks.unfinished import Unfinished

PROCESSES = 2


def all_of(
    bench: Bench,
    do: Callable[[Any], Any],
    tasks: Mapping[str, Any],
    keep: str,
    made_with: dict[str, Any],
) -> dict[str, Any]:
    """By name what `do`, a function of a module, makes of each task: JSON types only.

    It is kept under the name `keep` until all is done, and taken up where `made_with` is the same.
    """
    kept = None
    if bench.unfinished is not None:
        kept = Unfinished(bench.unfinished / f"learning-{keep}.unfinished.json", made_with)
    done: dict[str, Any] = {} if kept is None else kept.load() or {}
    pool = ProcessPoolExecutor(PROCESSES, get_context("spawn"))
    try:
        waiting = {pool.submit(do, task): name for name, task in tasks.items() if name not in done}
        for one in as_completed(waiting):
            done[waiting[one]] = one.result()
            bench.say(f"{keep}: {waiting[one]}, {len(done)} of {len(tasks)}")
            if kept is not None:
                kept.save(done)
    finally:  # where one fails, nobody waits for the rest
        pool.shutdown(cancel_futures=True)
    if kept is not None:
        kept.forget()
    return done
