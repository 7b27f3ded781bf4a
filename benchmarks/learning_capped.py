"""The trained controller against what an operator reaches who tunes a tree and a batch cap once.

A policy that only found one good pair of both would be no better than it. The pair is the best of
all trees and caps on training arrivals at the contest's load; the trained controllers' runs are
those of `learning_subject`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_contest import found
from benchmarks.learning_intervals import ratio
from benchmarks.learning_serving import best_capped, compared, episode_s, figure
from benchmarks.learning_subject import OURS, RUN

CAPPED = "capped-tree"


def over_capped(bench: Bench, _: str) -> Result:
    """Violations over the capped tree's, and goodput over its goodput; serves only the tree."""
    row = bench.rows.get(RUN)
    if row is None or "table" not in row.raw:
        raise UnmeasuredError(f"the trained runs are those of {RUN}, which was not measured")
    ours = row.raw["table"]
    labels = [label for label in ours if label.startswith(f"{OURS} ")]
    setting = found(bench).setting(episode_s(bench))
    spec = best_capped(setting)
    seeds = len(ours[labels[0]]["goodput"])
    theirs = compared(bench, setting, {CAPPED: spec}, seeds, "capped")
    ratios = {
        name: ratio(
            np.stack([figure(ours, label, name) for label in labels]),
            figure(theirs, CAPPED, name),
            bench.rng(),
        )
        for name in ("violations", "goodput")
    }
    attained = float(figure(theirs, CAPPED, "attainment").mean())
    return Result(
        ratios["goodput"].value,
        f"{ratios['violations'].written()}×, {ratios['goodput'].written()}×",
        note=f"{spec}, which attains {attained:.1f} %; {len(labels)} trainings, {seeds} held-out "
        "seeds",
        raw={"table": theirs, "capped_tree": spec}
        | {name: of._asdict() for name, of in ratios.items()},
    )
