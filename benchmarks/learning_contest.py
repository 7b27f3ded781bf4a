"""At which shifting load the trained controller is compared, and AdaServe at its best there.

The load is the one at which AdaServe attains 70 to 85 %: a factor on the loads of the preset, found
by halving. AdaServe's constants are what `tune.py` finds at the load at which its defaults attain
so much, and the load is then found again with them. All of this is done on training seeds and
training texts; nothing that a comparison shows is seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_runs import studied
from benchmarks.learning_serving import Setting, best_fixed, compared, episode_s, figure

FIGURE = "contest"
"""The figure that searches; the others read its row."""
LEAST, MOST = 70.0, 85.0
TARGET, NEAR = 77.5, 1.5
"""Percent of requests; the search ends so near to the middle."""
LOADS = (0.1, 1.7)
STEPS, QUICK_STEPS = 8, 4
SEEDS, QUICK_SEEDS, FIRST_SEED = 6, 1, 0
TUNING = ("--trials", "40", "--seeds", "6", "--seconds", "120")
QUICK_TUNING = ("--trials", "3", "--seeds", "2", "--seconds", "20")
DEFAULT = "adaserve"


class Contest(NamedTuple):
    """What the others read."""

    load: float
    adaserve: str
    best_fixed: str

    def setting(self, seconds: float) -> Setting:
        """Of a comparison on held-out seeds."""
        return Setting(seconds, self.load)


def search(bench: Bench, _: str) -> Result:
    """The factor on the preset's loads, with what AdaServe attains there on training seeds."""
    first, tried = load_for(bench, DEFAULT)
    options = ("--workload", "shifting", "--load", f"{first:g}")
    study = studied(bench, DEFAULT, (*options, *(QUICK_TUNING if bench.quick else TUNING)))
    spec = str(study["best"]["controller"])
    load, again = (first, tried) if spec == DEFAULT else load_for(bench, spec)
    attained = again[load]
    tree = best_fixed(Setting(episode_s(bench), load))
    return Result(
        load,
        f"{load:g} × the preset's: AdaServe attains {attained:.1f} %",
        note=f"AdaServe as {spec}, best fixed tree {tree}; with its defaults AdaServe attains "
        f"{tried[first]:.1f} % at {first:g}",
        raw={
            "load": load,
            "adaserve": spec,
            "best_fixed": tree,
            "attained_by_load": {"defaults": tried, "tuned": again},
        },
        broken="" if LEAST <= attained <= MOST else f"expected {LEAST:g} to {MOST:g} %",
    )


def load_for(bench: Bench, spec: str) -> tuple[float, dict[float, float]]:
    """The factor at which the controller attains nearest to TARGET, and what it did at all tried.

    Attainment falls with the load, so the range is halved until it is near.
    """
    low, high = LOADS
    tried: dict[float, float] = {}
    training = Setting(episode_s(bench), held_out=False)
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    for _ in range(QUICK_STEPS if bench.quick else STEPS):
        load = round((low + high) / 2, 3)
        setting = replace(training, load=load)
        table = compared(bench, setting, {spec: spec}, seeds, f"contest-{load:g}", FIRST_SEED)
        requests = figure(table, spec, "requests")
        missed = figure(table, spec, "violations")
        tried[load] = float(100.0 * (1.0 - missed.sum() / requests.sum()))
        if abs(tried[load] - TARGET) <= NEAR:
            break
        low, high = (load, high) if tried[load] > TARGET else (low, load)
    return min(tried, key=lambda load: abs(tried[load] - TARGET)), tried


def found(bench: Bench) -> Contest:
    """What the search came to. Raises UnmeasuredError before it was made."""
    row = bench.rows.get(FIGURE)
    if row is None or "load" not in row.raw:
        raise UnmeasuredError(
            f"the load is that of {FIGURE}, which has not been measured; name it first: "
            f"--only {FIGURE}"
        )
    return Contest(*(row.raw[key] for key in Contest._fields))
