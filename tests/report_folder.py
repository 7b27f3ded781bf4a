"""A results folder of small made-up parts, two controllers in each, for tests of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMES = ("steady", "</script><b>sly</b>")
"""The second would break out of any element that does not escape it."""
VERSIONS = {"revision": "abc", "python": "3.11.7", "platform": "Linux", "packages": {"numpy": "2"}}
HARDWARE = {"processor": "a processor", "cores": 2, "memory_bytes": 2**34, "gpus": []}


def figure(value: float, reach: float = 0.05) -> dict[str, float]:
    """With an interval of that reach."""
    return {"value": value, "low": value - reach, "high": value + reach}


def part(name: str, **of: Any) -> dict[str, Any]:
    """A whole part."""
    made = {"part": name, "schema": 1, "complete": True, "command": f"python -m eval.{name} --x"}
    return {**made, "seeds": [1, 2, 3], "versions": VERSIONS, "hardware": HARDWARE, **of}


def judged(attainment: tuple[float, float], level: list[str]) -> dict[str, Any]:
    """A regime in which the first controller is best, alone or level with the other."""
    says = "no difference shown" if level else f"{NAMES[0]} beats {NAMES[1]}"
    verdict = {
        "best": NAMES[0],
        "beats": [n for n in NAMES[1:] if n not in level],
        "level_with": level,
        "says": says,
    }
    scores = zip(NAMES, attainment, strict=True)
    return {
        "cells": 4,
        "controllers": {n: {"attainment": figure(a), "goodput": figure(a / 2)} for n, a in scores},
        "verdicts": {"attainment": verdict, "goodput": verdict},
        "differences": [],
    }


def matrix() -> dict[str, Any]:
    """Two loads of two targets."""
    clear, level = judged((0.9, 0.6), []), judged((0.7, 0.7), [NAMES[1]])
    loads = [{"axis": "load", "value": v, **of} for v, of in (("0.5", clear), ("1.1", level))]
    waits = {f"{w}_{p}": figure(0.2) for w in ("ttft_s", "tpot_ratio", "itl_s", "completion_s")
             for p in ("p50", "p95", "p99")}  # fmt: skip
    shares = {n: figure(0.9) for n in ("attainment", "tpot_attainment", "ttft_attainment")}
    cost = {"joules_per_valid_token": figure(1.0), "waste_share": figure(0.5)}
    return part(
        "matrix",
        size="small",
        cells=8,
        seeds_a_cell=3,
        controllers=list(NAMES),
        overall=clear,
        regimes=loads,
        loads_by_target=[
            {"target": t, "load": of["value"], **of} for t in ("a card", "a laptop") for of in loads
        ],
        by_target=[
            {"target": t, "controller": n, "slo_class": c, "cells": 4,
             "figures": {**waits, **shares, **cost}}
            for t in ("a card", "a laptop") for n in NAMES for c in ("all", "coding", "chat")
        ],
        costs={"joules_per_valid_token": "joules a token", "waste_share": "wasted"},
        worst={
            "metric": "attainment",
            "thresholds": [0.0, 0.5],
            "controllers": {n: {"cvar_5": figure(0.3), "profile": [figure(1.0), figure(0.7)]}
                            for n in NAMES},
        },
        faults=[{"controller": NAMES[1], "cell": "a cell", "fault": "ValueError: of its own"}],
        notes=["what it rests on"],
    )  # fmt: skip


def adaptation() -> dict[str, Any]:
    """One disturbance with one change."""
    names = ("regret", "settling_s", "restricted_s", "not_settled", "excess_s",
             "transient", "steady", "debt", "undershoot",
             "violations", "churn")  # fmt: skip
    figures = {n: {**{k: figure(1.0) for k in names}, "changes": 3, "unjudged": 1, "censored": 1}
               for n in NAMES}  # fmt: skip
    course = {k: [1.0, 2.0, 3.0] for k in ("valid_tps", "valid_tps_low", "valid_tps_high", "nodes")}
    courses = {n: {**course, "depth": [1.0, None, 3.0]} for n in ("switching oracle", *NAMES)}
    stretches = [{"start_s": 4.0 * i, "end_s": 4.0 * i + 4, "says": s, "oracle_tree": "chain(1)"}
                 for i, s in enumerate(("as usual", "twice the load"))]  # fmt: skip
    return part(
        "adaptation",
        controllers=list(NAMES),
        disturbances={"rate": {"title": "rate step", "end_s": 8.0, "window_s": 2.0,
                               "stretches": stretches}},
        figures={"rate": figures, "all": figures},
        verdicts={k: {"says": f"{k}: no difference shown"} for k in ("rate", "all")},
        courses={"rate": {"at_s": [0.0, 2.0, 4.0], "controllers": courses}},
        settled_when="at once",
        oracle="changes at once",
        failed=[],
    )  # fmt: skip


def frontier() -> dict[str, Any]:
    """Two demands under two policies."""
    run = {
        k: figure(50.0) for k in ("goodput_tps", "attainment", "joules_per_valid_token", "waste")
    }
    keys = ("attainment", "rejected", "degraded", "starved", "unfinished", "largest_queue_age_s",
            "token_share", "device_share")  # fmt: skip
    cells = [{"load": load, "all": run, "classes": {"coding": {k: figure(5.0) for k in keys}}}
             for load in (0.8, 1.6)]  # fmt: skip
    verdict = {"feasible": {"says": "meets it"}, "policies": {"reject": {"says": "no difference"}},
               "audit": {"none": "coding pays"}}  # fmt: skip
    return part(
        "frontier",
        controllers=list(NAMES),
        overloads=["none", "reject"],
        loads=[0.8, 1.6],
        titles={"all": {}, "class": {"starved": "waited long, %"}},
        cells={n: {o: cells for o in ("none", "reject")} for n in NAMES},
        verdicts=dict.fromkeys(NAMES, verdict),
        failed=[],
    )


def lossless() -> dict[str, Any]:
    """One that holds, and the control."""
    of = {
        "status": "lossless", "compared_tokens": 100, "departures": 0, "unexplained": 0,
        "agreement": figure(1.0, 0.0), "tokens_per_iteration": 1.4, "let_through": 0.0,
        "chi_square_p": 0.4, "total_variation": 0.1, "chance_variation": figure(0.1),
    }  # fmt: skip
    return part("lossless", verdict="the same", pair="a pair", controllers={NAMES[0]: of},
                control={**of, "status": "caught", "name": "control"}, notes=[])  # fmt: skip


def fidelity() -> dict[str, Any]:
    """One judged line and one pair."""
    line = {
        "case": "drain",
        "controller": NAMES[0],
        "judged": True,
        "figure": "mean TPOT",
        "live": 0.1,
        "replay": 0.11,
        "error": 0.1,
        "noise": 0.02,
        "bar": 0.05,
        "holds": False,
    }
    pair = {
        "first": NAMES[0],
        "second": NAMES[1],
        "metric": "goodput",
        "replay": 1.0,
        "live": {"mean": 1.0, "low": -1.0, "high": 3.0, "seeds": 4},
        "holds": True,
    }
    return {"versions": {"revision": "older"}, "seed": 0, "lines": [line], "ranking": [pair]}


PARTS = {
    "matrix": matrix, "adaptation": adaptation, "frontier": frontier, "lossless": lossless,
    "fidelity": fidelity,
}  # fmt: skip


def write(folder: Path, *names: str) -> Path:
    """The folder with those parts, all of them where none is named."""
    for name in names or tuple(PARTS):
        text = json.dumps(PARTS[name]())
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder
