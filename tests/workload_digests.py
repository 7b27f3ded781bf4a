"""Digests of episodes of every sort of workload, also as a command, to compare processes.

Light on imports: a fresh process must be there in a moment.
"""

from __future__ import annotations

import hashlib

import numpy as np

from engine.classes import DEFAULT_CLASSES
from engine.workload import (
    Disturbance,
    DrawnDisturbance,
    WorkloadConfig,
    draw_arrivals,
    workload,
)


def everything() -> dict[str, WorkloadConfig]:
    """A workload of each sort."""
    ramp = DrawnDisturbance("arrival_rate", (10.0, 30.0), (5.0, 20.0), (1.5, 3.0), 3.0)
    mix = Disturbance("mix", 5.0, 25.0, 3.0, slo_class="chat")
    return {
        "shifting": workload("shifting"),
        "three-peaks": workload("three-peaks"),
        "bursty": WorkloadConfig(load=1.0, duration_s=60.0, cv=4.0, process="weibull"),
        "disturbed": WorkloadConfig(
            load=1.0, duration_s=60.0, disturbances=(mix,), drawn_disturbances=(ramp,)
        ),
    }


def digest(config: WorkloadConfig, seed: int) -> str:
    """Of everything that an episode's seed decides."""
    arrivals = draw_arrivals(config, DEFAULT_CLASSES, 3.0, np.random.default_rng(seed))
    told = hashlib.sha256()
    told.update(arrivals.arrival_s.tobytes() + arrivals.slo_class.tobytes())
    table = arrivals.disturbances
    told.update(table.points_s.tobytes() + table.level.tobytes() + table.slope.tobytes())
    return told.hexdigest()


def digests() -> list[str]:
    """Of two seeds of each."""
    return [digest(config, seed) for config in everything().values() for seed in (0, 1000)]


if __name__ == "__main__":
    print(*digests())
