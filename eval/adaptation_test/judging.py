"""From courses to rows: a controller through a disturbance under a seed, one row a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eval.adaptation import adaptation
from eval.adaptation_test.course import Course
from eval.adaptation_test.disturbances import Disturbed
from eval.oracle import ORACLE

RUN_FIGURES = ("attainment", "goodput_tps", "valid_tps", "waste_share", "joules_per_valid_token")
"""Of the whole run, the time before the first change included; the same in each of its rows."""
Runs = Mapping[tuple[str, str, int], Mapping[str, Any]]
"""What `serving.served` brought, by disturbance, controller and seed."""


def rows_of(disturbances: Mapping[str, Disturbed], runs: Runs) -> list[dict[str, Any]]:
    """A row a change, and one for a run that failed, with why; figures are `Adaptation`'s."""
    found: list[dict[str, Any]] = []
    for (name, controller, seed), run in runs.items():
        oracle = runs[name, ORACLE, seed]
        key = {"disturbance": name, "controller": controller, "seed": seed}
        failed = run.get("failed") or ("" if "failed" not in oracle else "the oracle failed")
        if failed:
            found.append({**key, "failed": failed})
        else:
            found += [{**key, **row} for row in _passages(disturbances[name], run, oracle)]
    return found


def _passages(
    of: Disturbed, run: Mapping[str, Any], oracle: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    own, best = Course(**run["course"]), Course(**oracle["course"])
    for change, stretch in enumerate(of.stretches[1:], start=1):
        mine, theirs = (course.series(stretch.start_s, stretch.end_s) for course in (own, best))
        yield {
            "change": change,
            "at_s": stretch.start_s,
            "lasts_s": stretch.end_s - stretch.start_s,
            "to": stretch.says,
            "oracle_tokens": float(theirs.valid_tps.sum() * theirs.window_s),
            **adaptation(mine, theirs)._asdict(),
            **{figure: run[figure] for figure in RUN_FIGURES},
            "failed": "",
        }
