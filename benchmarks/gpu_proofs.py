"""The figures about the card's code that need no card: episodes, properties, signatures."""

from __future__ import annotations

from time import perf_counter

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError

SCHEDULES = 200
QUICK_SCHEDULES = 24
CASES = 1000
QUICK_CASES = 60
# Nothing of FlashInfer runs on a processor, so what it needs to run can be left out.
INSTALL = (
    "pip install --no-deps flashinfer-python==0.6.18 apache-tvm-ffi nvidia-ml-py requests tqdm "
    "packaging filelock"
)


def episodes(bench: Bench, _: str) -> Result:
    """Whole episodes on the interpreted FlashInfer calls, text against the CPU backend's, float64.

    Random schedules under every drafter, admission order and overload policy.
    """
    from tests.graph_properties import REFUSALS
    from tests.interpreted_schedules import run_interpreted_schedules

    wanted = QUICK_SCHEDULES if bench.quick else SCHEDULES
    begun = perf_counter()
    try:
        counts = run_interpreted_schedules(wanted, seed=0)
    except REFUSALS as error:
        reason = ", ".join([str(error), *getattr(error, "__notes__", ())])
        return Result(float("nan"), "failed", broken=f"a schedule failed: {reason}")
    equal = counts["schedules"]
    names = ("masked passes", "causal passes", "finished", "preempted")
    return Result(
        value=float(wanted - equal),
        text=f"{equal} of {wanted} with equal text",
        note=", ".join(f"{counts.get(name, 0):,} {name}" for name in names),
        raw={**counts, "seconds": perf_counter() - begun},
    )


def properties(bench: Bench, _: str) -> Result:
    """Properties of masks, page tables and graph tiers that do not hold in random cases."""
    from tests import graph_properties, paged_properties

    wanted = QUICK_CASES if bench.quick else CASES
    try:
        pages = paged_properties.run_properties(wanted)
        failed, graphs = graph_properties.run_graph_properties(wanted)
    except graph_properties.REFUSALS as error:
        reason = (str(error).strip() or "a property does not hold").splitlines()[0]
        return Result(float("nan"), "failed", broken=reason)
    counts = len(paged_properties.PROPERTIES), len(graph_properties.PROPERTIES)
    fewest = wanted * sum(counts)
    few = not failed and pages + graphs < fewest  # one that fails ends its cases
    return Result(
        value=float(failed),
        text=f"{failed} properties fail in {pages + graphs:,} cases",
        note=f"{counts[0]} properties of pages and masks, {counts[1]} of graphs and their tiers, "
        f"{wanted:,} cases each",
        broken=f"only {pages + graphs:,} of {fewest:,} cases ran" if few else "",
        raw={"page_cases": pages, "graph_cases": graphs, "graph_properties_failed": failed},
    )


def signatures(bench: Bench, _: str) -> Result:
    """Calls and parameters that the installed FlashInfer would not take as we give them."""
    from tests.flashinfer_calls import NAMES, differing_parameters, recorded_calls, refused_calls

    try:
        import flashinfer
    except ImportError as error:
        raise UnmeasuredError(
            f"FlashInfer cannot be imported ({error}); it can without a card: {INSTALL}"
        ) from error
    refused, differing = refused_calls(flashinfer), differing_parameters(flashinfer)
    calls = len(recorded_calls())
    wrong = [*refused, *differing]
    return Result(
        value=float(len(wrong)),
        text=f"{calls - len(refused)} of {calls} calls bind",
        note=f"flashinfer {flashinfer.__version__}, {len(NAMES)} signatures",
        broken="; ".join(wrong[:3]),
        raw={"version": flashinfer.__version__, "calls": calls, "wrong": wrong},
    )
