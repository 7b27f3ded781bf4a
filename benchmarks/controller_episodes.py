"""Every registered controller on random episodes with disturbances: what any of them does wrong.

The episodes and what counts as wrong are the suite's own (`tests/controller_trials.py`), which
serves a few of each; here it is 200, two controllers at a time in processes of their own.
"""

from __future__ import annotations

import importlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from policies import registry

EPISODES, QUICK_EPISODES = 200, 10
REPEATED = 4
"""Every so manieth episode is served twice, which tells whether a seed decides it."""
TOLD = 3
PROCESSES = 2
TRIALS = "tests.controller_trials"


def wrong(bench: Bench, _: str) -> Result:
    """Faults over all controllers and episodes."""
    try:
        importlib.import_module(TRIALS)
    except ModuleNotFoundError as lack:
        raise UnmeasuredError(
            f"the episodes are in the tests, which are not here ({lack}); run it in a checkout"
        ) from lack
    episodes = QUICK_EPISODES if bench.quick else EPISODES
    names = registry.names()
    found: dict[str, list[str]] = {}
    pool = ProcessPoolExecutor(PROCESSES, get_context("spawn"))
    try:
        waiting = {pool.submit(faults, name, episodes): name for name in names}
        for number, done in enumerate(as_completed(waiting), 1):
            bench.say(f"{episodes} random episodes: {number} of {len(names)} controllers")
            if told := done.result():
                found[waiting[done]] = told
    finally:  # where one fails, nobody waits for the rest
        pool.shutdown(cancel_futures=True)
    count = sum(map(len, found.values()))
    first = [f"{name}: {fault}" for name in sorted(found) for fault in found[name][:TOLD]]
    return Result(
        float(count),
        str(count),
        note="; ".join([f"{len(names)} controllers, {episodes} episodes each", *first]),
        raw={"faults": found, "controllers": names, "episodes": episodes},
    )


def faults(name: str, episodes: int) -> list[str]:
    """What one controller does wrong."""
    trials = importlib.import_module(TRIALS)
    told: list[str] = trials.faults(partial(trials.made, name), episodes, repeat_every=REPEATED)
    return told
