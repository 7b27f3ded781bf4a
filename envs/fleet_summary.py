"""The figures of an episode that a replica of a fleet has served, from its arrays.

What `envs.reward.serving_summary` says of its records, without making them; a test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.protocol import Bools
from engine.replay.fleet.records import came
from engine.replay.fleet.state import FleetState


def fleet_summary(fleet: FleetState, r: int, class_names: Sequence[str]) -> dict[str, float]:
    """Figures of replica r's episode under ALGORITHMS.md §10; nan where there is nothing to count.

    Of an episode that is cut while the trace goes on, unfinished requests do not count.
    """
    replica, slots = fleet.replicas[r], fleet.slots[r]
    rows = fleet.requests[r, : came(fleet, r)]
    is_ended = rows["ended"] > 0
    ended, running = rows[is_ended], slots[slots["active"]]
    met = attained(ended, fleet.classes)
    promises = ("tpot_s", "ttft_s", "completion_s", "queue_age_s")
    promised = np.min([fleet.classes[name] for name in promises], axis=0) < np.inf  # [C]

    clock_s, unfinished = float(replica["clock_s"]), len(rows) - len(ended)
    last_s = max(ended["finish_s"].max(initial=-np.inf), clock_s if unfinished else -np.inf)
    span_s = float(last_s - rows["arrival_s"].min()) if len(rows) else 0.0

    def per_second(tokens: int) -> float:
        return int(tokens) / span_s if span_s > 0 else float("nan")

    missed = np.zeros(len(class_names), np.int64)  # at a trace's end who is unfinished has missed
    if not replica["ready"]:
        missed = np.bincount(rows["slo_class"][~is_ended], minlength=len(class_names))
    of = ended["slo_class"]
    counted = np.where(promised, np.bincount(of, minlength=len(class_names)) + missed, 0)
    good = met & promised[of]
    attaining = np.bincount(of[good], minlength=len(class_names))
    summary = {
        "requests": float(len(rows)),
        "unfinished": float(unfinished),
        "attainment": _share(attaining.sum(), counted.sum()),
        "goodput_tps": per_second(ended["emitted"][good].sum()),
        "valid_tps": per_second(ended["valid_tokens"].sum() + running["valid_tokens"].sum()),
        "throughput_tps": per_second(ended["emitted"].sum() + running["emitted"].sum()),
        "span_s": span_s,
    }
    shares = zip(class_names, attaining, counted, strict=True)
    return summary | {f"attainment/{name}": _share(*of_class) for name, *of_class in shares}


def attained(ended: np.ndarray, classes: np.ndarray) -> Bools:
    """[n] whether finished requests, of REQUEST, met all objectives of their classes."""
    of, arrival_s = classes[ended["slo_class"]], ended["arrival_s"]
    decoded_s = ended["finish_s"] - ended["first_token_s"]
    several = ended["emitted"] > 1
    tpot_s = decoded_s / np.maximum(ended["emitted"] - 1, 1)
    met: Bools = ~several | (tpot_s <= of["tpot_s"])
    met &= ended["first_token_s"] - arrival_s <= of["ttft_s"]
    met &= ended["finish_s"] - arrival_s <= of["completion_s"]
    met &= np.maximum(ended["admitted_s"] - arrival_s, 0.0) <= of["queue_age_s"]
    return met


def _share(met: int, counted: int) -> float:
    return int(met) / int(counted) if counted else float("nan")
