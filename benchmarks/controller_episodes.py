"""Every registered controller on random episodes with disturbances: what any of them does wrong.

The episodes and what counts as wrong are the suite's own (`tests/controller_trials.py`), which
serves a few of each; here it is 200.
"""

from __future__ import annotations

import importlib
from functools import partial

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from policies import registry

EPISODES, QUICK_EPISODES = 200, 10
REPEATED = 4
"""Every so manieth episode is served twice, which tells whether a seed decides it."""
TOLD = 3


def wrong(bench: Bench, _: str) -> Result:
    """Faults over all controllers and episodes."""
    try:
        trials = importlib.import_module("tests.controller_trials")
    except ModuleNotFoundError as lack:
        raise UnmeasuredError(
            f"the episodes are in the tests, which are not here ({lack}); run it in a checkout"
        ) from lack
    episodes = QUICK_EPISODES if bench.quick else EPISODES
    found: dict[str, list[str]] = {}
    for name in registry.names():
        bench.say(f"{episodes} random episodes: {name}")
        if faults := trials.faults(partial(trials.made, name), episodes, repeat_every=REPEATED):
            found[name] = faults
    count = sum(map(len, found.values()))
    first = [f"{name}: {fault}" for name, faults in found.items() for fault in faults[:TOLD]]
    return Result(
        float(count),
        str(count),
        note="; ".join([f"{len(registry.names())} controllers, {episodes} episodes each", *first]),
        raw={"faults": found, "controllers": registry.names(), "episodes": episodes},
    )
