"""Learning-to-Draft's published set-up on live, batch 1, over EAGLE-3: against the best fixed tree.

The tree is chosen on other prompts than those it is reported on. `PRESET` trains on replay.
"""

from __future__ import annotations

import numpy as np

from benchmarks import ratios
from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_runs import trained

PRESET = ("--preset", "learning-to-draft")
CHOOSING, REPORTED = 3, 12
"""Prompts of each set."""
QUICK_CHOOSING, QUICK_REPORTED = 1, 2


def over_best_fixed(bench: Bench, sets: str) -> Result:
    """Tokens a second of the preset over the best fixed tree's, one request at a time."""
    from benchmarks.speed import QUICK_TREES, TREES, in_turns, rate, split_prompts, warm_up

    try:
        spec = str(trained(bench, PRESET))
    except UnmeasuredError as error:
        raise UnmeasuredError(f"no policy of that preset can be trained: {error}") from error
    trees = QUICK_TREES if bench.quick else TREES
    choosing, reported = (QUICK_CHOOSING, QUICK_REPORTED) if bench.quick else (CHOOSING, REPORTED)
    chosen_on, reported_on = split_prompts(bench, sets.split(), choosing, reported)
    warm_up(bench, chosen_on[0][1], (spec, *trees))
    tried = in_turns(bench, "choosing a tree", [[p] for _, p in chosen_on], trees, 1)
    best = max(trees, key=lambda tree: rate(tried[tree]))
    prompts = [[p] for _, p in reported_on]
    runs = in_turns(bench, f"learning-to-draft against {best}", prompts, (spec, best), 1)
    columns = [
        np.array([getattr(served, name) for served in runs[who]], np.float64)
        for who in (spec, best)
        for name in ("tokens", "seconds")
    ]
    ratio = ratios.of_rates(columns[0], columns[1], columns[2], columns[3], bench.rng())
    return Result(
        ratio.value,
        f"{ratio}×",
        note=f"{rate(runs[spec]):.1f} against {rate(runs[best]):.1f} tokens/s of {best}; "
        f"{len(prompts)} prompts",
        raw={"best_fixed": best, "interval_95": [ratio.low, ratio.high]},
    )
