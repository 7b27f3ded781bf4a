"""Whether the text is still the target's: `python -m eval.lossless` on the pair that ships."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Result
from eval.lossless import telling
from eval.lossless.course import BROKEN, proved
from eval.lossless.scope import Scope, server_of

LOSSY = "adaptivespec-margin"
"""One that owns to a margin, beside those that may not have any: what it gives up is told."""


def measured(bench: Bench, _: str) -> Result:
    """Controllers of the proof that change what the target says and own to no margin."""
    usual = Scope()
    policy = (*usual.policy, LOSSY)
    scope = Scope(policy=policy, prompts=4, tokens=24, draws=150) if bench.quick else Scope(policy)
    with server_of(scope) as server:
        report = proved(scope, server, bench.say)
    summary: dict[str, Any] = telling.summary(report)
    broken = [proof.name for proof in report.proofs if proof.status == BROKEN]
    texts = sum(len(proof.texts) for proof in report.proofs)
    return Result(
        value=float(len(broken)),
        text=f"{len(broken)} of {len(report.proofs)}",
        note=f"{texts} texts and {scope.draws} beginnings a controller; {summary['verdict']} "
        f"{'; '.join(summary['notes'])}",
        raw={key: summary[key] for key in ("pair", "dtype", "controllers", "control", "notes")},
        broken="" if report.is_caught else "the control was not caught",
    )
