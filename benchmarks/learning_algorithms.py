"""Every algorithm on the same budget: whether it beats ordinary decoding and a random policy.

Each is trained as `train.py` has it on shifting load, three times for as many decisions; compared
on held-out seeds. Learning curves, and the decisions that it took to beat the best fixed tree, are
`learning_curves`' and stand in the same row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_curves import HELD_OUT_EVERY, best_fixed_level, curve_of, steps_to
from benchmarks.learning_intervals import beats
from benchmarks.learning_random import SPEC as RANDOM
from benchmarks.learning_runs import revisions, trainings
from benchmarks.learning_serving import Setting, Table, best_fixed, compared, episode_s, figure
from train.algorithms.registry import ALGORITHMS

DECISIONS = 65_536
"""Half a minute of PPO, some minutes of SAC and TQC."""
TRAININGS, QUICK_TRAININGS = 3, 1
SEEDS, QUICK_SEEDS = 10, 2
SECONDS = 200.0
"""Of a run that is compared; regimes are shortened to fit."""
OPPONENTS = {"autoregressive": "autoregressive", "random policy": RANDOM}
TREE = "best-fixed"
START = "capped-tree(0,1,1,1)"
"""Where training begins: no drafts, one request at a time. What is gained on it was learned."""
BASELINES = "algorithm_baselines"
"""The figure that serves those who are not trained; the algorithms' read its row."""


def baselines(bench: Bench, _: str) -> Result:
    """Goodput of the best fixed tree, of ordinary decoding and of a random policy."""
    setting = compared_in(bench)
    tree = best_fixed(setting)
    specs = {TREE: tree, **OPPONENTS}
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    table = compared(bench, setting, specs, seeds, "baselines")
    means = {label: float(np.mean(of["goodput"])) for label, of in table.items()}
    return Result(
        means[TREE],
        f"{means[TREE]:.1f} tokens/s, {tree}",
        note="; ".join(f"{label} {means[label]:.1f}" for label in OPPONENTS),
        raw={"table": table, "best_fixed": tree, "level": best_fixed_level(tree)},
    )


def over_start(bench: Bench, _: str) -> Result:
    """How many algorithms beat the controller with which their training begins."""
    rows = {name: bench.rows.get(f"algorithm_{name}") for name in ALGORITHMS}
    tables = {
        name: row.raw["table"]
        for name, row in rows.items()
        if row is not None and "table" in row.raw and row.quick == bench.quick
    }
    if len(tables) < len(rows):
        raise UnmeasuredError("not every algorithm has been measured in this length")
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    theirs = compared(bench, compared_in(bench), {START: START}, seeds, "algorithm-start")
    found = {name: against(table, theirs, START, bench.rng()) for name, table in tables.items()}
    won = sum(of["beats"] for of in found.values())
    return Result(
        float(won),
        f"{won} of {len(found)}",
        note="; ".join(f"{name}: {of['text']}" for name, of in found.items()),
        raw={"against": found, "table": theirs},
    )


def compared_in(bench: Bench) -> Setting:
    """Shifting load as the preset has it, in shorter runs."""
    return Setting(min(SECONDS, episode_s(bench)))


def beaten(bench: Bench, name: str) -> Result:
    """Of ordinary decoding and a random policy, how many the algorithm beats."""
    row = bench.rows.get(BASELINES)
    if row is None or "table" not in row.raw:
        raise UnmeasuredError(f"compared with {BASELINES}, which has not been measured")
    length = ("--decisions", f"{DECISIONS}", "--minutes", "60")
    options = ("--policy", name, *length, "--held-out-every", f"{HELD_OUT_EVERY}")
    runs = trainings(bench, options, range(QUICK_TRAININGS if bench.quick else TRAININGS))
    specs = {str(i): str(run) for i, run in enumerate(runs)}
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    ours = compared(bench, compared_in(bench), specs, seeds, f"algorithm-{name}")
    found = told(ours, row.raw["table"], bench.rng())
    curve = curve_of(runs)
    found |= {"curve": curve, "level": row.raw["level"], "runs": revisions(runs)}
    found |= {"steps_to_best_fixed": steps_to(curve, row.raw["level"])}
    return of_opponents(found)


def told(ours: Table, theirs: Table, rng: np.random.Generator) -> dict[str, Any]:
    """Against each opponent and the best fixed tree, and what they are made of."""
    others = (*OPPONENTS, TREE)
    return {"against": {o: against(ours, theirs, o, rng) for o in others}, "table": ours}


def against(ours: Table, theirs: Table, opponent: str, rng: np.random.Generator) -> dict[str, Any]:
    """Whether `ours`, a label a training, beats one of `theirs`, and both differences."""
    names = ("goodput", "violations")
    won, more, missed = beats(
        {name: np.stack([figure(ours, label, name) for label in ours]) for name in names},
        {name: figure(theirs, opponent, name) for name in names},
        rng,
    )
    return {
        "beats": won,
        "goodput": more._asdict(),
        "violations": missed._asdict(),
        "text": f"goodput {more.written(1, '+')} tokens/s, violations {missed.written(1, '+')}",
    }


def of_opponents(found: dict[str, Any]) -> Result:
    """The row of an algorithm."""
    differences, steps = found["against"], found["steps_to_best_fixed"]
    won = sum(differences[opponent]["beats"] for opponent in OPPONENTS)
    above = "never shown above" if steps is None else f"after {steps:,} decisions above"
    judged = found["curve"]["steps"]
    last = f" of {judged[-1]:,}" if judged else ""
    return Result(
        float(won),
        f"{won} of {len(OPPONENTS)}",
        note="; ".join(f"{opponent}: {of['text']}" for opponent, of in differences.items())
        + f"; on the way {above} the best fixed tree{last}; {len(found['table'])} trainings",
        raw=found,
    )
