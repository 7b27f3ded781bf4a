"""Who came through a disturbance with the least regret, in words, and against whom it is not shown.

Whoever has the least mean is set against each other controller, by paired differences over seeds.
Since the seeds that choose it also judge it, intervals are those of all pairs (Bonferroni).
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
    `behind` who loses more, `differences` (theirs less the least) with their intervals.
    """
    known = {name: values for name, values in regret.items() if not np.isnan(values).all()}
    if not known:
        return {"says": f"{title}: nothing could be judged", "least": None}
    means = {name: float(np.nanmean(values)) for name, values in known.items()}
    least = min(means, key=lambda name: means[name])
    others = sorted((name for name in known if name != least), key=lambda name: means[name])
    level = several(LEVEL, len(known) * (len(known) - 1) // 2)
    differences: dict[str, Any] = {}
    undecided: list[str] = []
    behind: list[str] = []
    for name in others:
        rng = np.random.default_rng(0)
        interval = paired_difference(known[name], known[least], rng, level)
        differences[name] = figure(interval)
        (behind if interval.low > 0 else undecided).append(name)
    own = mean_interval(known[least], np.random.default_rng(0))
    parts = [f"{title}: {least} has the least regret, {_in_words(own.mean)}"]
    if own.high < 0:
        parts[0] += " (it beats the switching oracle)"
    if undecided:
        parts.append(f"against {joined(undecided)} no difference shown")
    if behind:
        parts.append(f"{joined(behind)} {'loses' if len(behind) == 1 else 'lose'} more")
    return {
        "says": "; ".join(parts),
        "least": least,
        "regret": figure(own),
        "undecided": undecided,
        "behind": behind,
        "differences": differences,
    }


def _in_words(percent: float) -> str:
    if percent < 0:
        return f"{-percent:.1f} % more tokens in time than the oracle"
    return f"{percent:.1f} % of the oracle's tokens"
