"""AdaServe's figures 8 to 11 on replay: violations and goodput against the best published baseline.

At each of the paper's points whose trace is there. Violations count only where AdaServe has 30 over
the seeds together; the best baseline of a point is the one with the fewest violations, and for
goodput the one with the most. What the paper claims are its best points: 4.3 and 1.9 times. What
stands between a point and those is told point by point by `sweeps_account`.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.adaserve_constants import searched
from benchmarks.adaserve_traces import HORIZON_S, SWEEPS, SYSTEMS, world_of
from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import Served, Table, attained, compared, each, goodput, violations
from benchmarks.ratios import of_sums
from benchmarks.sweeps_account import number
from eval.statistics import paired_difference, violation_ratio

SEEDS, QUICK_SEEDS = 10, 2
RUN = "sweeps_ahead"
"""The figure that serves; the other two are read from its row."""


def ahead(bench: Bench, _: str) -> Result:
    """Percent of the points at which AdaServe has fewer violations, its interval clear of 1."""
    # A short run drops no figure: the first and the last point of each stand for the rest.
    worlds = {
        f"{figure} {trace.partition('/')[2]}": world_of(trace)
        for figure, traces in SWEEPS.items()
        for trace in ((traces[0], traces[-1]) if bench.quick else traces)
    }
    specs = {**SYSTEMS, "adaserve": searched(bench)}
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    tables = compared(worlds, specs, seeds, bench.say, HORIZON_S)
    points = {
        name: point(bench, table) | {"objectives_s": dict(worlds[name].objectives_s)}
        for name, table in tables.items()
    }
    counted = [p for p in points.values() if p["violations"] is not None]
    if not counted:
        raise UnmeasuredError("AdaServe had fewer than 30 violations at every point")
    led = sum(p["violations"]["low"] > 1 for p in counted)
    fewer = sum(p["fewer"]["high"] < 0 for p in points.values())
    return Result(
        100 * led / len(counted),
        f"{led} of {len(counted)}",
        note=f"{len(points) - len(counted)} of {len(points)} points have too few violations to "
        f"count; by the difference over seeds AdaServe has fewer at {fewer} of {len(points)}; "
        + "; ".join(f"{name}: {told(p)}" for name, p in points.items()),
        raw={"points": points, "adaserve": specs["adaserve"], "seeds": seeds},
    )


def point(bench: Bench, table: Table) -> dict[str, Any]:
    """One point's ratios, each with the baseline that it is over, and what they are made of."""
    ours = table["adaserve"]
    fewest = min(SYSTEMS, key=lambda label: violations(table[label]).sum())
    most = max(SYSTEMS, key=lambda label: goodput(table[label]).sum())
    ratio = violation_ratio(violations(table[fewest]), violations(ours), bench.rng())
    fewer = paired_difference(violations(ours), violations(table[fewest]), bench.rng())
    gain = of_sums(goodput(ours), goodput(table[most]), bench.rng())
    met = {label: each(runs, lambda m: 100 * m.attainment) for label, runs in table.items()}
    return {
        "fewest": fewest,
        "violations": None if ratio is None else vars(ratio),
        "fewer": vars(fewer),
        "counts": {label: violations(runs).tolist() for label, runs in table.items()},
        "most_goodput": most,
        "goodput": gain._asdict(),
        # All that is asked for would be goodput if nobody missed.
        "most_gain": float(100 / max(met[most].mean(), 1e-9)),
        "attainment": {label: float(attained(runs).mean()) for label, runs in table.items()},
        "by_class": {label: by_class(table[label]) for label in ("adaserve", fewest)},
    }


def by_class(runs: tuple[Served, ...]) -> dict[str, dict[str, float]]:
    """Of each class the percent that met its objective, and seconds per token in the median."""
    return {
        name: {
            "met": fmean(100 * run.metrics.by_class[name].tpot_attainment for run in runs),
            "tpot_s": fmean(run.metrics.by_class[name].tpot_s.p50 for run in runs),
        }
        for name in runs[0].metrics.by_class
    }


def best(bench: Bench, name: str) -> Result:
    """The largest ratio of any point, `name` "violations" or "goodput"."""
    row = bench.rows.get(RUN)
    if row is None or "points" not in row.raw:
        raise UnmeasuredError(f"it is read from {RUN}, which has not been measured")
    key = {"violations": "mean", "goodput": "value"}[name]
    found = {at: p[name] for at, p in row.raw["points"].items() if p[name] is not None}
    if not found:
        raise UnmeasuredError("AdaServe had fewer than 30 violations at every point")
    top = max(found, key=lambda at: found[at][key])
    ratio = found[top]
    over = row.raw["points"][top]["fewest" if name == "violations" else "most_goodput"]
    return Result(
        ratio[key],
        f"{ratio[key]:.2f} [{number(ratio['low']):.2f}, {number(ratio['high']):.2f}]",
        note=f"at {top}, over {over}; the points are listed under the share of points",
        broken="" if 1 < number(ratio["low"]) < float("inf") else "the interval reaches 1",
    )


def told(p: dict[str, Any]) -> str:
    """A point in words."""
    ratio, gain = p["violations"], p["goodput"]
    if ratio is None:
        return (
            f"too few violations ({sum(p['counts']['adaserve']):.0f}), goodput {gain['value']:.2f}"
        )
    return (
        f"violations of {p['fewest']} {ratio['mean']:.2f} [{ratio['low']:.2f}, "
        f"{ratio['high']:.2f}], goodput over {p['most_goodput']} {gain['value']:.2f}"
    )
