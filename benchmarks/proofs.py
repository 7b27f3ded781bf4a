"""The two figures that are proofs counted: exact enumeration, and random schedules."""

from __future__ import annotations

from time import perf_counter

from benchmarks.bench import Bench
from benchmarks.figures import Result

CASES = 1000
QUICK_CASES = 50
SCHEDULES = 2000
QUICK_SCHEDULES = 50


def enumeration(bench: Bench, _: str) -> Result:
    """Total variation between the target's law and what the production walk emits, as a fraction.

    Every draw of the target is enumerated with its rational weight, over random trees and
    prunings on tiny vocabularies.
    """
    from tests.enumeration import enumerate_cases

    wanted = QUICK_CASES if bench.quick else CASES
    cases, largest = enumerate_cases(wanted, seed=0)
    return Result(
        value=float(largest),
        text=f"{largest} in {cases:,} cases",
        broken="" if cases >= wanted else f"only {cases:,} of {wanted:,} cases",
        raw={"cases": cases, "largest_total_variation": str(largest)},
    )


def schedules(bench: Bench, _: str) -> Result:
    """Random schedules after which no page is leaked and every text is ordinary decoding's.

    Greedy and sampled requests, under every drafter, admission order and overload policy.
    """
    from tests.random_schedules import run_schedules

    wanted = QUICK_SCHEDULES if bench.quick else SCHEDULES
    try:
        run_schedules(1, seed=1)  # compiles, which is not the schedules' time
        begun = perf_counter()
        counts = run_schedules(wanted, seed=0)
    except (AssertionError, RuntimeError) as error:
        reason = ", ".join([str(error), *getattr(error, "__notes__", ())])
        return Result(float("nan"), "failed", broken=f"a schedule failed: {reason}")
    seconds = (perf_counter() - begun) / wanted
    happened = [f"{value:,} {name}" for name, value in counts.items() if name != "schedules"]
    return Result(
        value=float(wanted - counts["schedules"]),
        text=f"0 of {counts['schedules']:,}",
        note=", ".join([f"{1e3 * seconds:.0f} ms a schedule", *happened]),
        raw={**counts, "seconds_per_schedule": seconds},
    )
