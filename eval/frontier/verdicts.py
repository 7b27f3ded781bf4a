"""What the sweep shows: how far demand is met, which overload policy helps, and who pays for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.parts import figure
from eval.statistics import paired_difference, several
from eval.writing import joined

LEVEL = 0.95
FEASIBLE = 90.0
"""Percent of attainment that counts as demand met."""
NOTABLE = 10.0
"""Percent of a class's requests from which on it is told of."""
NONE = "none"


def verdicts_of(
    controllers: Sequence[str],
    overloads: Sequence[str],
    loads: Sequence[float],
    seeds: Sequence[int],
    runs: Mapping[tuple[str, str, float, int], Mapping[str, Any]],
    cells: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
) -> dict[str, dict[str, Any]]:
    """By controller: `feasible` up to which demand, `policies` against none, `audit` by policy."""
    most = max(loads)
    found: dict[str, dict[str, Any]] = {}
    for c in controllers:
        others = [o for o in overloads if o != NONE]
        level = several(LEVEL, 2 * len(others))
        found[c] = {
            "feasible": _feasible(c, overloads[0], cells[c][overloads[0]], len(seeds)),
            "policies": {
                o: _against_none(c, o, most, seeds, runs, level)
                for o in others
                if NONE in overloads
            },
            "audit": {
                o: f"{c}, {_audit(o, most, cells[c][o][list(loads).index(most)])}"
                for o in overloads
            },
        }
    return found


def _feasible(
    controller: str, overload: str, cells: Sequence[Mapping[str, Any]], seeds: int
) -> dict[str, Any]:
    """Highest demand, from the lowest up, to which the whole interval of attainment holds.

    The search ends at the first demand where it does not, so the demands need no correction for
    each other (a fixed sequence of tests), and where a run failed, which meets nobody's demand.
    """
    who = f"{controller} under overload policy {overload}"
    held: list[float] = []
    for cell in cells:
        if cell["runs"] < seeds or not cell["all"]["attainment"]["low"] >= FEASIBLE:
            break
        held.append(cell["load"])
    if held:
        says = f"{who} meets {FEASIBLE:g} % up to {held[-1]:g} × capacity"
    elif any(cell["runs"] for cell in cells):
        says = f"{who} is not shown to meet {FEASIBLE:g} % at any of the demands"
    else:
        says = f"{who}: all runs failed"
    return {"load": held[-1] if held else None, "says": says}


def _against_none(
    controller: str,
    overload: str,
    load: float,
    seeds: Sequence[int],
    runs: Mapping[tuple[str, str, float, int], Mapping[str, Any]],
    level: float,
) -> dict[str, Any]:
    """Paired differences to no policy at that demand, and what they show."""
    differences: dict[str, Any] = {}
    parts: list[str] = []
    for name, title in (("goodput_tps", "goodput"), ("jain", "Jain's index")):
        ours, theirs = (
            [_figure(runs[controller, o, load, s], name) for s in seeds] for o in (overload, NONE)
        )
        interval = paired_difference(ours, theirs, np.random.default_rng(0), level)
        differences[name] = figure(interval)
        digits, unit = (1, " tokens/s") if name == "goodput_tps" else (2, "")
        if not interval.seeds:
            parts.append(f"{title}: nothing to compare")
        elif not interval.excludes_zero:
            parts.append(f"{title}: no difference shown")
        else:
            word = "higher" if interval.mean > 0 else "lower"
            parts.append(f"{title} {abs(interval.mean):.{digits}f}{unit} {word}")
    says = f"{overload} against none at {load:g} ×: {', '.join(parts)}"
    return {"differences": differences, "says": says}


def _audit(overload: str, load: float, cell: Mapping[str, Any]) -> str:
    """Who is turned away, moved or starved at that demand, and who has the device, in words."""
    if not cell["runs"]:
        return f"{overload} at {load:g} ×: all runs failed"
    classes = cell["classes"]
    parts = []
    for name, words in (
        ("rejected", "turned away"),
        ("degraded", "moved to a looser class"),
        ("starved", "starved"),
    ):
        hit = [
            f"{value:.0f} % of {c}"
            for c, of in classes.items()
            if (value := of[name]["value"]) is not None and value >= NOTABLE
        ]
        if hit:
            parts.append(f"{words}: {joined(hit)}")
    if not parts:
        parts.append(f"nobody in {NOTABLE:g} % or more is turned away, moved or starved")
    shares = [
        f"{c} {of['device_share']['value']:.0f} %"
        for c, of in classes.items()
        if math.isfinite(of["device_share"]["value"])
    ]
    age_s = cell["all"]["largest_queue_age_s"]["value"]
    parts.append(f"largest queue age {age_s:.1f} s")
    if shares:
        parts.append(f"device time: {', '.join(shares)}")
    return f"{overload} at {load:g} ×: {'; '.join(parts)}"


def _figure(run: Mapping[str, Any], name: str) -> float:
    return math.nan if "failed" in run else float(run["all"][name])
