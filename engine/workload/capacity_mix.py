"""Which share of a workload's requests each class brings, before any episode is drawn.

Loads are multiples of what a server can do, and that hangs on whose prompts it reads: both
drawings, live and replay, weigh the classes by these shares. NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.classes import ClassTable
from engine.protocol import Floats
from engine.workload.arrivals import class_weights, need_classes, peaked_spans
from engine.workload.config import WorkloadConfig
from engine.workload.traces import ArrivalSource, Trace


class Asked(NamedTuple):
    """What a class brings to a mix: a capacity is of such parts together."""

    name: str
    share: float
    """Of the requests, or any weight in proportion to it."""
    prompt_tokens: float
    """Mean tokens of its prompts."""
    output_tokens: float
    """Mean tokens of its answers, as long as they may get."""


def mean_lengths(asked: Sequence[Asked]) -> tuple[float, float]:
    """Mean prompt and output tokens over the mix's requests; zeros of a mix without shares."""
    weights = [part.share for part in asked]
    if not sum(weights) > 0:
        return 0.0, 0.0
    lengths = [(part.prompt_tokens, part.output_tokens) for part in asked]
    prompt, output = np.average(lengths, axis=0, weights=weights).tolist()
    return prompt, output


def class_shares(
    config: WorkloadConfig, classes: ClassTable, source: ArrivalSource | None = None
) -> Floats:
    """[C] expected shares of the requests in the table's order; 0 for a class that never comes.

    Regimes count by the requests that they bring, load × time within `duration_s`; of drawn ones
    the expected mix counts. `source` is the loaded trace of a workload that has one; where it names
    no classes the workload's mix is drawn from. Disturbances are left out.
    Raises UserError for a class that the table lacks.
    """
    where = f"workload {config.name!r}"
    weights = class_weights(where, config.mix, classes)
    if config.trace is not None:
        return weights if source is None else _of_trace(config, classes, source, weights)
    if config.peaks:
        spans = peaked_spans(config, classes, 1.0)
        total = np.sum([(s.end_s - s.start_s) * s.rate_rps * s.weights for s in spans], axis=0)
        return total / total.sum()
    total, left_s = np.zeros_like(weights), float(config.duration_s)
    for regime in config.regimes:
        own = class_weights(where, regime.mix, classes) if regime.mix else weights
        total += regime.load * max(min(regime.duration_s, left_s), 0.0) * own
        left_s -= regime.duration_s
    return total / total.sum() if config.regimes else weights


def _of_trace(
    config: WorkloadConfig, classes: ClassTable, source: ArrivalSource, weights: Floats
) -> Floats:
    """The shares of the whole trace, `weights` [C] for the requests of which it names no class."""
    if config.trace is None or not isinstance(source, Trace) or source.slo_class is None:
        return weights
    where = f"workload {config.name!r}"
    ours = [config.trace.classes.get(name, name) for name in source.class_names]
    need_classes(where, f"trace {config.trace.source}", ours, classes)
    counts = np.bincount(source.slo_class[source.slo_class >= 0], minlength=len(ours))
    total = (source.slo_class < 0).sum() * weights
    for name, count in zip(ours, counts.tolist(), strict=True):
        total[classes.names.index(name)] += count
    return total / total.sum() if total.sum() > 0 else weights
