"""The figures of learning that are proofs counted: two toys of known answer, and runs that are cut.

The toys are the suite's own (`tests/timed_toys.py`): in one a constant discount learns the wrong
action, of the other the value at a cut is known. The cut runs are `killed_training`'s.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError

TOYS, CASES = "tests.timed_toys", "tests.test_timed_algorithms"
KILLED = "benchmarks.killed_training"
RUNS, QUICK_RUNS = 5, 1
POLICY = "ppo"
LASTS_S, GAMMA = 20.0, 0.98
"""Of the truncation toy: a step's seconds, and the discount of one."""


def right_action(bench: Bench, _: str) -> Result:
    """How likely the right action of the first toy is, of the algorithm that it is least likely."""
    toys, cases = toys_of()
    chance = {}
    for name in cases.TO_ACT:
        bench.say(f"scalar-γ toy: {name}")
        model = toys.trained(name, [2.0, 1.0], [10.0, 1.0], 100, 0.9, cases.TO_ACT[name])
        chance[name] = toys.chance_of_second(model)
    worst = min(chance, key=lambda name: chance[name])
    return Result(
        chance[worst],
        f"{chance[worst]:.4f}, {worst}",
        note=", ".join(f"{name} {value:.4f}" for name, value in chance.items()),
        raw=chance,
    )


def value_error(bench: Bench, _: str) -> Result:
    """By how many percent the value of the second toy is off, of the algorithm that is worst."""
    from train.algorithms.registry import ALGORITHMS

    toys, cases = toys_of()
    exact = toys.SCALE / (1.0 - GAMMA**LASTS_S)
    off = {}
    for name in cases.TO_VALUE:
        bench.say(f"truncation toy: {name}")
        options = {"learning_rate": 5e-3} if ALGORITHMS[name].is_off_policy else {"gae_lambda": 1.0}
        cut_after, decisions = cases.CUT_AFTER.get(name, 4), cases.TO_VALUE[name]
        lasts = [LASTS_S, LASTS_S]
        model = toys.trained(name, [1.0, 1.0], lasts, cut_after, GAMMA, decisions, **options)
        off[name] = 100.0 * abs(toys.value(model) / exact - 1.0)
    worst = max(off, key=lambda name: off[name])
    return Result(
        off[worst],
        f"{off[worst]:.2f} %, {worst}",
        note=", ".join(f"{name} {percent:.2f}" for name, percent in off.items()),
        raw=off,
    )


def killed(bench: Bench, _: str) -> Result:
    """Runs, killed and resumed, whose final weights differ from those of a run that was not."""
    try:
        killed_training = importlib.import_module(KILLED)
    except ModuleNotFoundError as lack:
        raise UnmeasuredError(f"what kills a run and resumes it is not here ({lack})") from lack
    runs = QUICK_RUNS if bench.quick else RUNS
    same = []
    for seed in range(runs):
        bench.say(f"killing and resuming: run {seed + 1} of {runs}")
        same.append(bool(killed_training.identical(seed, POLICY)))
    return Result(
        float(runs - sum(same)),
        f"{runs - sum(same)} of {runs}",
        note=f"{sum(same)} of {runs} identical",
        raw={"identical": same},
    )


def toys_of() -> tuple[Any, Any]:
    """The toys, and how long the suite trains on them. Raises UnmeasuredError without tests."""
    try:
        return importlib.import_module(TOYS), importlib.import_module(CASES)
    except ModuleNotFoundError as lack:
        raise UnmeasuredError(
            f"the toys are in the tests, which are not here ({lack}); run it in a checkout"
        ) from lack
