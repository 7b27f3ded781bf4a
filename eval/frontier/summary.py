"""What frontier.json holds: by controller, overload policy and demand every figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.frontier.audit import STARVED_RATIO
from eval.frontier.verdicts import verdicts_of
from eval.parts import figure
from eval.statistics import mean_interval

RUN_TITLES = {
    "attainment": "attainment, %",
    "goodput_tps": "goodput, tokens/s",
    "jain": "Jain's index of the classes' attainment",
    "largest_queue_age_s": "largest queue age, s",
    "rejected": "turned away, %",
    "waste": "drafts in vain, % of all drafted",
    "joules_per_valid_token": "energy, J per SLO-valid token",
    "valid_tokens_per_device_s": "SLO-valid tokens per device second",
}
CLASS_TITLES = {
    "attainment": "attainment, %",
    "rejected": "turned away, %",
    "degraded": "moved to a looser class, %",
    "starved": f"waited over {STARVED_RATIO:g} unloaded token times for a slot, %",
    "unfinished": "not done at the cut, %",
    "largest_queue_age_s": "largest queue age, s",
    "token_share": "share of the tokens, %",
    "device_share": "share of the device's time, %",
}
PERCENT = (
    *("attainment", "rejected", "degraded", "starved", "unfinished", "waste"),
    *("token_share", "device_share"),
)
MOST = {"jain": 1.0, **dict.fromkeys(PERCENT, 100.0)}
"""How far figures can go; none goes below 0."""
Key = tuple[str, str, float, int]
"""Controller, overload policy, demand, seed."""
Runs = Mapping[Key, Mapping[str, Any]]


def rows_of(runs: Runs) -> list[dict[str, Any]]:
    """A row a run and class, and one with class `all`; one alone for a run that failed."""
    found = []
    for (controller, overload, load, seed), run in runs.items():
        key = {"controller": controller, "overload": overload, "load": load, "seed": seed}
        if "failed" in run:
            found.append({**key, "class": "all", "failed": run["failed"]})
            continue
        for name, of in {"all": run["all"], **run["classes"]}.items():
            found.append({**key, "class": name, "failed": "", **of})
    return found


def summary_of(
    controllers: Sequence[str],
    overloads: Sequence[str],
    loads: Sequence[float],
    seeds: Sequence[int],
    runs: Runs,
) -> dict[str, Any]:
    """Cells by controller and policy, a demand each in the order of `loads`, and the verdicts."""
    cells = {
        c: {o: [_cell(c, o, load, seeds, runs) for load in loads] for o in overloads}
        for c in controllers
    }
    return {
        "controllers": list(controllers),
        "overloads": list(overloads),
        "loads": list(loads),
        "titles": {"all": RUN_TITLES, "class": CLASS_TITLES},
        "cells": cells,
        "verdicts": verdicts_of(controllers, overloads, loads, seeds, runs, cells),
        "failed": [
            {"controller": c, "overload": o, "load": load, "seed": s, "failed": run["failed"]}
            for (c, o, load, s), run in runs.items()
            if "failed" in run
        ],
    }


def _cell(
    controller: str, overload: str, load: float, seeds: Sequence[int], runs: Runs
) -> dict[str, Any]:
    made = [runs[controller, overload, load, seed] for seed in seeds]
    whole = [run for run in made if "failed" not in run]

    def of(part: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Any]:
        found = {}
        for name in names:
            interval = mean_interval([p[name] for p in part], np.random.default_rng(0))
            found[name] = figure(interval, 0.0, MOST.get(name, math.inf))
        return found

    return {
        "load": load,
        "runs": len(whole),
        "all": of([run["all"] for run in whole], RUN_TITLES),
        "classes": {
            name: of([run["classes"][name] for run in whole], CLASS_TITLES)
            for name in (whole[0]["classes"] if whole else ())
        },
    }
