"""What an abrupt change costs: of the mix, of acceptance, of draft speed, of memory; on replay.

The changes are `learning_change`'s, the load that of `learning_contest`. The reference is the
switching oracle (docs/evaluation.md), which has the best fixed tree of either side of the change.
Held-out seed i is served by the subject's training i, in turn, so that its trainings are in the
interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result
from benchmarks.learning_change import CHANGES, Passage, Search, passed, searched
from benchmarks.learning_contest import found
from benchmarks.learning_pool import all_of
from benchmarks.learning_subject import ADASERVE, OURS, subjects
from engine.workload import FIRST_HELD_OUT_SEED
from eval.statistics import paired_difference

TURBOSPEC = "turbospec"
SEEDS, QUICK_SEEDS = 10, 1
SEARCHED, QUICK_SEARCHED = 2, 1
"""Seeds of the oracle's search."""
QUICK_SCALE = 0.5
FIGURES = {"regret_tokens": "regret, tokens", "excess_s": "excess time, s"}


def below(bench: Bench, _: str) -> Result:
    """Changes of four after which the trained controller loses less than both others."""
    contest = found(bench)
    runs = subjects(bench, contest)
    scale, seeds = (QUICK_SCALE, QUICK_SEEDS) if bench.quick else (1.0, SEEDS)
    count = QUICK_SEARCHED if bench.quick else SEARCHED
    searches = {change: Search(change, contest.load, count, scale) for change in CHANGES}
    trees = all_of(bench, searched, searches, "adaptation-oracle", _plain(searches))
    others = {ADASERVE: contest.adaserve, TURBOSPEC: TURBOSPEC}
    passages = {
        f"{change} {i}": Passage(
            search,
            tuple(trees[change]),
            {OURS: str(runs[i % len(runs)]), **others},
            FIRST_HELD_OUT_SEED + i,
        )
        for change, search in searches.items()
        for i in range(seeds)
    }
    came = all_of(bench, passed, passages, "adaptation", _plain(passages))
    by_change = {change: [came[f"{change} {i}"] for i in range(seeds)] for change in CHANGES}
    return judged(by_change, trees, bench.rng())


def judged(
    by_change: Mapping[str, list[Any]], trees: Mapping[str, Any], rng: np.random.Generator
) -> Result:
    """A change is won where mean regret is less and mean excess time no more than both others'."""
    told = {change: _of_change(ways, rng) for change, ways in by_change.items()}
    count = sum(of["won"] for of in told.values())
    notes = [
        f"{change} ({'below' if of['won'] else 'not below'} both; {of['unjudged']} of "
        f"{len(by_change[change])} not judged, {of['censored']} censored): "
        + ", ".join(
            f"{name} {i['mean']:+.1f} [{i['low']:.1f}, {i['high']:.1f}]"
            for name, i in of["differences"].items()
        )
        for change, of in told.items()
    ]
    raw = {"changes": told, "oracle": trees, "passages": by_change}
    return Result(float(count), f"{count} of {len(told)}", "; ".join(notes), raw)


def _of_change(ways: list[Any], rng: np.random.Generator) -> dict[str, Any]:
    """Differences to both others; excess times where the oracle's noise hides them are left out."""
    differences, won = {}, True
    for other in (ADASERVE, TURBOSPEC):
        for name, title in FIGURES.items():
            ours, theirs = ([way[who][name] for way in ways] for who in (OURS, other))
            interval = paired_difference(
                np.array(ours, np.float64), np.array(theirs, np.float64), rng
            )
            differences[f"less {other}'s {title}"] = vars(interval)
            won &= interval.mean < 0 or (name == "excess_s" and interval.mean == 0)
    return {
        "differences": differences,
        "won": bool(won),
        "unjudged": sum(not way[OURS]["judged"] for way in ways),
        "censored": sum(way[OURS]["excess_censored"] for way in ways),
    }


def _plain(tasks: Mapping[str, Search | Passage]) -> dict[str, Any]:
    """As JSON has it."""
    found: dict[str, Any] = json.loads(json.dumps({k: asdict(task) for k, task in tasks.items()}))
    return found
