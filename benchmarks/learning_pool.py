"""Many pieces of work in two processes, each kept when it is done: one that was cut goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.unfinished import Unfinished
from eval.pool import each_made


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
    left = [(name, task) for name, task in tasks.items() if name not in done]
    for (name, _), made in each_made(partial(_of_named, do), left):
        done[name] = made
        bench.say(f"{keep}: {name}, {len(done)} of {len(tasks)}")
        if kept is not None:
            kept.save(done)
    if kept is not None:
        kept.forget()
    return done


def _of_named(do: Callable[[Any], Any], named: tuple[str, Any]) -> Any:
    return do(named[1])
