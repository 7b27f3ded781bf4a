"""The figures of learning that are proofs counted: two toys of known answer, and runs that are cut.

The toys are the suite's own (`tests/timed_toys.py`): in one a constant discount learns the wrong
action, of the other the value at a cut is known. The cut runs are `killed_training`'s.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks import killed_training
from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from train.algorithms.registry import ALGORITHMS

TOYS = "tests.timed_toys"
RUNS, QUICK_RUNS = 5, 1
POLICY = "ppo"


def right_action(bench: Bench, _: str) -> Result:
    """How likely the right action of the first toy is, of the algorithm that it is least likely."""
    toys, chance = toys_of(), {}
    for name in ALGORITHMS:
        bench.say(f"scalar-γ toy: {name}")
        chance[name] = toys.chance_of_second(toys.choosing(name))
    worst = min(chance, key=lambda name: chance[name])
    return _told(chance, worst, f"{chance[worst]:.4f}", 4)


def value_error(bench: Bench, _: str) -> Result:
    """By how many percent the value of the second toy is off, of the algorithm that is worst."""
    toys, off = toys_of(), {}
    for name in ALGORITHMS:
        bench.say(f"truncation toy: {name}")
        model, exact = toys.valuing(name)
        off[name] = 100.0 * abs(toys.value(model) / exact - 1.0)
    worst = max(off, key=lambda name: off[name])
    return _told(off, worst, f"{off[worst]:.2f} %", 2)


def _told(found: dict[str, float], worst: str, text: str, digits: int) -> Result:
    note = ", ".join(f"{name} {value:.{digits}f}" for name, value in found.items())
    return Result(found[worst], f"{text}, {worst}", note=note, raw=found)


def killed(bench: Bench, _: str) -> Result:
    """Runs, killed and resumed, whose final weights differ from those of a run that was not."""
    runs = QUICK_RUNS if bench.quick else RUNS
    same = []
    for seed in range(runs):
        bench.say(f"killing and resuming: run {seed + 1} of {runs}")
        same.append(killed_training.identical(seed, POLICY))
    return Result(
        float(runs - sum(same)),
        f"{runs - sum(same)} of {runs}",
        note=f"{sum(same)} of {runs} identical",
        raw={"identical": same},
    )


def toys_of() -> Any:
    """The toys. Raises UnmeasuredError without tests."""
    try:
        return importlib.import_module(TOYS)
    except ModuleNotFoundError as lack:
        raise UnmeasuredError(
            f"the toys are in the tests, which are not here ({lack}); run it in a checkout"
        ) from lack
