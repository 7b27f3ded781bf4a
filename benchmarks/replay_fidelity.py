"""Whether replay tells the truth: `python -m eval.fidelity`, as figures.

The recorded pair must be there to be run live, in the number format in which it was recorded. Time
is compared by a profile of this machine that is measured between the live runs, with `--quick` the
shipped one, each stage as slow as it was there, so that neither an old profile nor a machine that
drifts or is interrupted counts as an error of the model. The note says how much that was.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.bench import Bench
from benchmarks.figures import Result
from eval.fidelity.scope import LONG_S, Scope, measured, servers, steady

WHOLE = Scope(measure_profile=True, calibrate=True)
QUICK = Scope(  # by the shipped profile: one of few points is of too small passes for 16 requests
    calibrate=True,
    seconds=6.0,
    drained=6,
    loads=(0.5, 0.85),
    block_requests=3,
)
TIER_TEXTS, QUICK_TIER_TEXTS = 32, 4


def lines(bench: Bench, _: str) -> Result:
    """Judged lines of the table that do not hold."""
    scope = replace(QUICK if bench.quick else WHOLE, blocks=0)
    bench.say("loading the recorded pair")
    with servers(scope) as both:
        report = measured(scope, both, bench.say)
    from eval.fidelity.telling import as_json

    judged = report.judged
    held = sum(told.line.holds for told in judged)
    missed = [f"{t.case} {t.controller} {t.line.figure}" for t in judged if not t.line.holds]
    return Result(
        value=float(len(judged) - held),
        text=f"{held} of {len(judged)} hold",
        note="; ".join([*map(str, report.drift), *missed]),
        raw=as_json(report),
    )


def ranking(bench: Bench, _: str) -> Result:
    """Pairs of controllers whose difference live shows and replay has the other way round."""
    scope = replace(QUICK if bench.quick else WHOLE, loads=(), drained=0)
    bench.say("loading the recorded pair")
    with servers(scope) as both:
        report = measured(scope, both, bench.say)
    from eval.fidelity.telling import as_json

    pairs = report.pairs
    held, shown = sum(p.holds for p in pairs), sum(p.live.excludes_zero for p in pairs)
    return Result(
        value=float(len(pairs) - held),
        text=f"{held} of {len(pairs)} hold",
        note=f"live shows a difference in {shown} of them, over {scope.blocks} blocks",
        raw=as_json(report),
    )


def tiers(bench: Bench, _: str) -> Result:
    """(depth, width, nodes) tiers whose accepted lengths differ anywhere."""
    from eval.fidelity.course import at_once
    from eval.fidelity.tiers import compared_tiers

    texts = QUICK_TIER_TEXTS if bench.quick else TIER_TEXTS
    bench.say("loading the recorded pair")
    with servers(WHOLE) as (live, replay):
        bench.say("every tree on both")
        case = at_once(steady(replay, 2.0, LONG_S, 0), texts)
        found = compared_tiers(live, replay, case)
        dtype, unseen = replay.manifest.dtype, found.unseen(replay.settings.limits)
    tried = len(found.seen)
    return Result(
        value=float(len(found.different)),
        text=f"{tried - len(found.different)} of {tried} tiers equal",
        note=f"{found.visits:,} iterations of {texts} texts, {dtype}",
        raw={
            "tiers": tried,
            "visits": found.visits,
            "different": {"×".join(map(str, t)): n for t, n in sorted(found.different.items())},
        },
        broken=f"{unseen} tiers were never drafted" if unseen else "",
    )
