"""What adaptation.json holds: figures, verdicts, and the courses that a report draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from engine.protocol import Floats
from eval.adaptation import HOLD_WINDOWS, LEAST_TOLERANCE, SIGMAS, STEADY_SHARE
from eval.adaptation_test import passages
from eval.adaptation_test.course import Course
from eval.adaptation_test.disturbances import Disturbed
from eval.adaptation_test.figures import FIGURES, figures_of, seeds_alone, values
from eval.adaptation_test.judging import Runs
from eval.adaptation_test.verdicts import verdict_of
from eval.oracle import ORACLE
from eval.windows import attained

ALL = "all"
"""The seven together."""


def summary_of(
    disturbances: Mapping[str, Disturbed],
    controllers: Sequence[str],
    seeds: Sequence[int],
    oracle: Mapping[str, Sequence[Mapping[str, Any]]],
    runs: Runs,
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Figures and verdicts by disturbance and of all, `oracle` as `oracle.searched` found it."""
    regret = next(of for of in FIGURES if of.name == "regret")
    titles = {name: of.title for name, of in disturbances.items()} | {ALL: "all seven"}
    figures: dict[str, Any] = {}
    verdicts: dict[str, Any] = {}
    for name in titles:
        mine = {
            c: [r for r in rows if r["controller"] == c and name in (ALL, r["disturbance"])]
            for c in controllers
        }
        chosen = {key: of for key, of in disturbances.items() if name in (ALL, key)}
        figures[name] = {
            c: {
                **figures_of(of, seeds, list(chosen)),
                **passages.figures_of(_passages(list(chosen.values()), c, seeds, runs)),
                "seeds_alone": seeds_alone(of),
            }
            for c, of in mine.items()
        }
        whole = {c: [r for r in of if not r["failed"]] for c, of in mine.items()}
        verdicts[name] = verdict_of(
            titles[name],
            {c: values(regret, of, seeds, list(chosen)) for c, of in whole.items()},
        )
    return {
        "controllers": list(controllers),
        "titles": {of.name: of.title for of in FIGURES} | passages.TITLES,
        "disturbances": {name: _told(of, oracle[name]) for name, of in disturbances.items()},
        "figures": figures,
        "verdicts": verdicts,
        "courses": {
            name: courses_of(name, of, [ORACLE, *controllers], seeds, runs)
            for name, of in disturbances.items()
        },
        "settled_when": (
            f"SLO-valid tokens/s at least 1 - max({LEAST_TOLERANCE:g}, {SIGMAS:g}σ/mean) of the "
            f"oracle's for {HOLD_WINDOWS} windows; mean and σ over the last {STEADY_SHARE:.0%} of "
            "the oracle's stretch"
        ),
        "oracle": (
            "changes to the best fixed tree of each stretch when the stretch begins, also where "
            "what changes is no regime (memory, power, draft time, acceptance); trees by a sweep "
            "of SLO-valid tokens a second over training seeds and texts, each stretch alone"
        ),
        "failed": [
            {key: row[key] for key in ("disturbance", "controller", "seed", "failed")}
            for row in rows
            if row["failed"]
        ],
    }


def courses_of(
    name: str, of: Disturbed, controllers: Sequence[str], seeds: Sequence[int], runs: Runs
) -> dict[str, Any]:
    """By controller the means over seeds of what happened in each window [W], and when that begins.

    `valid_tps` has 95 % bounds over the seeds (Student's t), the rest are means. Where nobody
    decoded or ended, depth, nodes and attainment are null.
    """
    found: dict[str, Any] = {}
    for controller in controllers:
        made = [runs[name, controller, seed] for seed in seeds]
        courses = [Course(**run["course"]) for run in made if "failed" not in run]
        if not courses:
            continue
        valid = np.array([course.valid_tps for course in courses])
        reach = _reach(valid)
        found[controller] = {
            "valid_tps": valid.mean(axis=0).tolist(),
            "valid_tps_low": np.maximum(valid.mean(axis=0) - reach, 0.0).tolist(),
            "valid_tps_high": (valid.mean(axis=0) + reach).tolist(),
            "good_tps": np.mean([course.good_tps for course in courses], axis=0).tolist(),
            "attainment": _pooled(courses).tolist(),
            "depth": _known_mean([course.depth for course in courses]).tolist(),
            "nodes": _known_mean([course.nodes for course in courses]).tolist(),
        }
    windows = round(of.end_s / of.window_s)
    return {"at_s": [of.window_s * i for i in range(windows)], "controllers": found}


def _passages(
    disturbances: Sequence[Disturbed], controller: str, seeds: Sequence[int], runs: Runs
) -> list[passages.Passage]:
    """The controller's changes, each under the seeds that neither it nor the oracle failed in."""
    found = []
    for of in disturbances:
        both = {s: (runs[of.name, controller, s], runs[of.name, ORACLE, s]) for s in seeds}
        whole = {
            seed: [Course(**run["course"]) for run in pair]
            for seed, pair in both.items()
            if not any("failed" in run for run in pair)
        }
        for stretch in of.stretches[1:]:
            own, oracle = (
                [pair[i].series(stretch.start_s, stretch.end_s) for pair in whole.values()]
                for i in range(2)
            )
            found.append(passages.Passage(list(whole), own, oracle))
    return found


def _told(of: Disturbed, oracle: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "title": of.title,
        "end_s": of.end_s,
        "window_s": of.window_s,
        "changes_s": [stretch.start_s for stretch in of.stretches[1:]],
        "stretches": [
            {
                "start_s": stretch.start_s,
                "end_s": stretch.end_s,
                "says": stretch.says,
                "oracle_tree": best["tree"],
                "sweep_valid_tps": best["valid_tps"],
            }
            for stretch, best in zip(of.stretches, oracle, strict=True)
        ],
    }


def _reach(samples: Floats) -> Floats:
    """Half of the 95 % interval of the mean [W] of samples [seeds, W]; inf of one seed."""
    count = len(samples)
    if count < 2:
        return np.full(samples.shape[1], np.inf)
    error = samples.std(axis=0, ddof=1) / np.sqrt(count)
    return np.asarray(stats.t.ppf(0.975, count - 1) * error)


def _pooled(courses: Sequence[Course]) -> Floats:
    """[W] attainment over the requests of all seeds that ended in a window."""
    judged = np.sum([course.judged for course in courses], axis=0)
    return attained(judged, np.sum([course.violations for course in courses], axis=0))


def _known_mean(samples: Sequence[Sequence[float]]) -> Floats:
    """[W] means over the seeds that have a value, nan where none has."""
    values = np.array(samples, np.float64)
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
