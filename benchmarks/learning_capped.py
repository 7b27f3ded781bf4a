"""Trained controllers against what an operator reaches who tunes a tree and a batch cap once.

A policy that only found one good pair of both would be no better than it. The pair is the one with
the most goodput, of twenty trees with seven caps each, on training arrivals at the same load. The
trained controllers' runs are those of `learning_subject`, at the contest's load, or PPO's in
`learning_algorithms`, at the preset's.
"""

from __future__ import annotations

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_algorithms import compared_in
from benchmarks.learning_contest import Contest
from benchmarks.learning_intervals import difference, ratio
from benchmarks.learning_serving import best_capped, compared, episode_s, figure
from benchmarks.learning_subject import OTHERS, RUN

CAPPED = "capped-tree"


def over_capped(bench: Bench, of: str) -> Result:
    """Goodput of the trained runs in the row `of` over the capped tree's; serves only the tree."""
    row = bench.rows.get(of)
    if row is None or "table" not in row.raw or row.quick != bench.quick:
        length = "quick" if bench.quick else "full"
        raise UnmeasuredError(
            f"the trained runs are those of {of}, not measured in {length} length"
        )
    ours = {label: runs for label, runs in row.raw["table"].items() if label not in OTHERS}
    if of == RUN:
        setting = Contest(**row.raw["contest"]).setting(episode_s(bench))
    else:
        setting = compared_in(bench)
    spec = best_capped(setting)
    seeds = min(len(runs["goodput"]) for runs in ours.values())
    theirs = compared(bench, setting, {CAPPED: spec}, seeds, f"capped-{of}")
    trained = {
        name: np.stack([figure(ours, label, name) for label in ours])
        for name in ("goodput", "attainment")
    }
    over = ratio(trained["goodput"], figure(theirs, CAPPED, "goodput"), bench.rng())
    more = difference(trained["attainment"], figure(theirs, CAPPED, "attainment"), bench.rng())
    return Result(
        over.value,
        f"{over.written()}×",
        note=f"{spec}; attainment {trained['attainment'].mean():.1f} against "
        f"{figure(theirs, CAPPED, 'attainment').mean():.1f} %, {more.written(1, '+')} points; "
        f"{len(ours)} trainings, {seeds} held-out seeds",
        raw={"table": theirs, "capped_tree": spec, "goodput": over._asdict()}
        | {"attainment": more._asdict()},
    )
