"""AdaServe's figures 8 to 11 on replay: violations and goodput against the best published baseline.

At each of the paper's points whose trace is there. Violations count only where AdaServe has 30 over
the seeds together; the best baseline of a point is the one with the fewest violations, and for
goodput the one with the most. What the paper claims are its best points: 4.3 and 1.9 times.
"""

from __future__ import annotations

from typing import Any

from benchmarks.adaserve_traces import ADASERVE, HORIZON_S, SWEEPS, SYSTEMS, world_of
from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import Table, attained, compared, goodput, violations
from benchmarks.ratios import of_sums
from eval.statistics import violation_ratio

SEEDS, QUICK_SEEDS = 10, 2
RUN = "sweeps_ahead"
"""The figure that serves; the other two are read from its row."""


def ahead(bench: Bench, _: str) -> Result:
    """Percent of the points at which AdaServe has fewer violations, its interval clear of 1."""
    points: dict[str, dict[str, Any]] = {}
    for figure, traces in SWEEPS.items():
        # A short run drops no figure: the first and the last of each stand for the rest.
        for trace in (traces[0], traces[-1]) if bench.quick else traces:
            world = world_of(trace)
            table = compared(
                world,
                {**SYSTEMS, "adaserve": ADASERVE},
                QUICK_SEEDS if bench.quick else SEEDS,
                bench.say,
                HORIZON_S,
            )
            points[f"{figure} {trace.partition('/')[2]}"] = point(bench, table)
    counted = [p for p in points.values() if p["violations"] is not None]
    if not counted:
        raise UnmeasuredError("AdaServe had fewer than 30 violations at every point")
    led = sum(p["violations"]["low"] > 1 for p in counted)
    share = 100 * led / len(counted)
    return Result(
        share,
        f"{led} of {len(counted)}",
        note=f"{len(points) - len(counted)} points have too few violations to count; "
        + "; ".join(f"{name}: {told(p)}" for name, p in points.items()),
        raw={"points": points},
    )


def point(bench: Bench, table: Table) -> dict[str, Any]:
    """One point's ratios, each with the baseline that it is over."""
    ours = table["adaserve"]
    fewest = min(SYSTEMS, key=lambda label: violations(table[label]).sum())
    most = max(SYSTEMS, key=lambda label: goodput(table[label]).sum())
    ratio = violation_ratio(violations(table[fewest]), violations(ours), bench.rng())
    gain = of_sums(goodput(ours), goodput(table[most]), bench.rng())
    return {
        "fewest": fewest,
        "violations": None if ratio is None else vars(ratio),
        "counts": {label: violations(runs).tolist() for label, runs in table.items()},
        "most_goodput": most,
        "goodput": gain._asdict(),
        "attainment": {label: float(attained(runs).mean()) for label, runs in table.items()},
        "by_baseline": {
            label: float(violations(table[label]).sum() / max(violations(ours).sum(), 1))
            for label in SYSTEMS
        },
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
        f"{ratio[key]:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
        note=f"at {top}, over {over}; the points are listed under the share of points",
        broken="" if ratio["low"] > 1 else "the interval reaches 1",
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
