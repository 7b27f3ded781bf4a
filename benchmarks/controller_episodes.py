"""Every registered controller on random episodes with disturbances: what any of them does wrong.

The episodes and what counts as wrong are the suite's own (`tests/controller_trials.py`), which
serves a few of each; here it is 200, two controllers at a time in processes of their own.
"""

from __future__ import annotations

import importlib
from functools import partial

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from eval.pool import each_made
from policies import registry

EPISODES, QUICK_EPISODES = 200, 10
REPEATED = 4
"""Every so manieth episode is served twice, which tells whether a seed decides it."""
TOLD = 3
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
    by_name = each_made(partial(faults, episodes=episodes), names)
    for number, (name, told) in enumerate(by_name, 1):
        bench.say(f"{episodes} random episodes: {number} of {len(names)} controllers")
        if told:
            found[name] = told
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
