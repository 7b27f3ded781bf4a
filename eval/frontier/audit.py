"""What an operator asks of a run in overload: who was served, who paid, and who used the device.

By class, and of the run. Shares are percent of the class's requests; what is not shown is nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.classes import ClassTable
from engine.overload import OverloadRule
from engine.protocol import Floats, Outcome, View
from engine.request import RequestRecord, Status
from eval.metrics import attainment, goodput_tps, largest_queue_age_s
from eval.runner import Run

if TYPE_CHECKING:
    from engine.loop import Engine

STARVED_RATIO = OverloadRule().progress_age_ratio
"""Starved: waited longer for a slot than this, in unloaded token times; what the overload policy
minimum-progress bounds."""


class Work:
    """An observer: device time by class, and all records.

    A step's drafting is shared out by candidates scored, its selection and verification by nodes
    verified. Reading is shared out by prompt tokens at the end, since steps do not say whose prompt
    they read; what was read again after a preemption is not told apart.
    """

    def __init__(self, classes: ClassTable) -> None:
        self.decoding_s = np.zeros(len(classes.classes))
        self.prefill_s = 0.0
        self.records: list[RequestRecord] = []

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Share out an iteration."""
        self.prefill_s += outcome.prefill_s
        ran, of = outcome.ran, outcome.slo_class
        for seconds, work in (
            (outcome.draft_s, outcome.drafted),
            (outcome.select_s + outcome.verify_s, outcome.verified),
        ):
            weights = np.where(ran, work, 0)
            total = weights.sum()
            if total > 0:
                np.add.at(self.decoding_s, of[ran], seconds * weights[ran] / total)

    def on_record(self, record: RequestRecord) -> None:
        """Keep it."""
        self.records.append(record)

    def close(self) -> None:
        """Nothing is written."""

    def device_s(self) -> Floats:
        """[C] seconds of drafting, selecting, verifying and reading."""
        read = np.zeros(len(self.decoding_s))
        for record in self.records:
            if not math.isnan(record.first_token_s):
                read[record.slo_class] += record.prompt_tokens
        share = read / read.sum() if read.sum() > 0 else read
        return np.asarray(self.decoding_s + self.prefill_s * share)


def audited(run: Run, work: Work, classes: ClassTable, unloaded_tpot_s: float) -> dict[str, Any]:
    """`all`, the run's figures, and `classes`, those of each class, by name."""
    by_class = {
        name: of_class([r for r in work.records if r.slo_class == c], unloaded_tpot_s)
        for c, name in enumerate(classes.names)
    }
    device_s = work.device_s()
    shares = _percent(device_s), _percent(np.array([of["tokens"] for of in by_class.values()]))
    for c, of in enumerate(by_class.values()):
        of["device_s"], of["device_share"] = float(device_s[c]), float(shares[0][c])
        of["token_share"] = float(shares[1][c])
    return {
        "all": {
            "attainment": 100.0 * run.metrics.attainment,
            "goodput_tps": run.metrics.goodput_tps,
            "jain": jain([of["attainment"] for of in by_class.values()]),
            "largest_queue_age_s": largest_queue_age_s(work.records),
            "rejected": _share([r.status is Status.REJECTED for r in work.records]),
            "waste": 100.0 * run.waste_share,
            "rejected_nodes": run.rejected_nodes,
            "joules_per_valid_token": run.joules_per_valid_token,
            "valid_tokens_per_device_s": run.valid_tokens_per_device_s,
        },
        "classes": by_class,
    }


def of_class(records: Sequence[RequestRecord], unloaded_tpot_s: float) -> dict[str, Any]:
    """The figures of one class's records."""
    patience_s = STARVED_RATIO * unloaded_tpot_s
    return {
        "requests": len(records),
        "attainment": 100.0 * attainment(records),
        "rejected": _share([r.status is Status.REJECTED for r in records]),
        "degraded": _share([r.degraded_to >= 0 for r in records]),
        "starved": _share(
            [r.status is not Status.REJECTED and r.queue_age_s > patience_s for r in records]
        ),
        "unfinished": _share([r.status is Status.UNFINISHED for r in records]),
        "largest_queue_age_s": largest_queue_age_s(records),
        "goodput_tps": goodput_tps(records),
        "tokens": sum(r.output_tokens for r in records),
        "valid_tokens": sum(r.valid_tokens for r in records),
        "verified_nodes": sum(r.verified_nodes for r in records),
    }


def jain(values: Sequence[float]) -> float:
    """(Σx)² / (n Σx²): 1 where all classes fare alike, 1/n where one has all (Jain et al., 1984).

    Of the classes that have a value. Where all have nothing they fare alike.
    """
    known = np.array([x for x in values if not math.isnan(x)], np.float64)
    if len(known) == 0:
        return math.nan
    squares = float((known**2).sum())
    return float(known.sum()) ** 2 / (len(known) * squares) if squares > 0 else 1.0


def _share(which: Sequence[bool]) -> float:
    return 100.0 * sum(which) / len(which) if which else math.nan


def _percent(amounts: Floats) -> Floats:
    total = amounts.sum()
    return np.asarray(100.0 * amounts / total) if total > 0 else np.full(len(amounts), math.nan)
