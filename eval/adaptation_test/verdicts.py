"""Who came through a disturbance with the least regret, in words, and against whom it is not shown.

Whoever has the least mean is set against each other controller, by paired differences over seeds.
Since the seeds that choose it also judge it, those intervals are of all pairs (Bonferroni), and the
one by which it beats the oracle is of as many as there are controllers. Who failed in a seed that
another came through is not called the least: to fail in the hardest seeds is no merit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eval.parts import figure
from eval.statistics import mean_interval, paired_difference, several
from eval.writing import joined

LEVEL = 0.95


def verdict_of(title: str, regret: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """`regret` by controller [seeds], in percent of the oracle's tokens, nan where a run failed.

    `says` is the sentence; `least` the controller, `undecided` against whom no difference is shown,
    `behind` who loses more, `ahead` who lost less but failed in some seeds, `differences` (theirs
    less the least) with their intervals, `without` by controller in how many seeds it failed.
    """
    seeds = {name: int((~np.isnan(of)).sum()) for name, of in regret.items()}
    most = max(seeds.values(), default=0)
    if not most:
        return {"says": f"{title}: nothing could be judged", "least": None}
    known = {name: of for name, of in regret.items() if seeds[name]}
    means = {name: float(np.nanmean(of)) for name, of in known.items()}
    ordered = sorted(known, key=lambda name: (seeds[name] < most, means[name]))
    least, others = ordered[0], sorted(ordered[1:], key=lambda name: means[name])
    level = several(LEVEL, len(known) * (len(known) - 1) // 2)
    differences: dict[str, Any] = {}
    undecided, behind, ahead = list[str](), list[str](), list[str]()
    for name in others:
        rng = np.random.default_rng(0)
        interval = paired_difference(known[name], known[least], rng, level)
        differences[name] = figure(interval)
        if not interval.excludes_zero:
            undecided.append(name)
        else:
            (behind if interval.mean > 0 else ahead).append(name)
    rng = np.random.default_rng(0)
    own = mean_interval(known[least], rng, several(LEVEL, len(known)))
    parts = [f"{title}: {least} has the least regret, {_in_words(own.mean)}"]
    if own.high < 0:
        parts[0] += " (it beats the switching oracle)"
    if undecided:
        parts.append(f"against {joined(undecided)} no difference shown")
    if behind:
        parts.append(f"{joined(behind)} {'loses' if len(behind) == 1 else 'lose'} more")
    if ahead:
        parts.append(f"{joined(ahead)} lost less in the seeds without a failure")
    without = {name: most - count for name, count in seeds.items() if count < most}
    if without:
        told = (f"{name} in {count} of {most} seeds" for name, count in without.items())
        parts.append(f"failed: {joined(told)}")
    return {
        "says": "; ".join(parts),
        "least": least,
        "regret": figure(own),
        "undecided": undecided,
        "behind": behind,
        "ahead": ahead,
        "differences": differences,
        "without": without,
    }


def _in_words(percent: float) -> str:
    if percent < 0:
        return f"{-percent:.1f} % more tokens in time than the oracle"
    return f"{percent:.1f} % of the oracle's tokens"
