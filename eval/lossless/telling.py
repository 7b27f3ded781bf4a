"""What a proof says: lines for a terminal, the part's summary, its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy import stats

from eval.lossless.course import BROKEN, IDLE, LOSSLESS, LOSSY, Proof, Report
from eval.lossless.other_format import Floor
from eval.lossless.same_text import HOW, Compared
from eval.parts import figure
from eval.statistics import mean_interval
from eval.writing import joined

PER = 100_000
Figure = dict[str, float]


def told(report: Report) -> Iterator[str]:
    """The table and the verdict."""
    yield (
        f"{'':24} {'tokens':>7} {'departures':>12} {'agreement %':>18} {'chi-square p':>13} "
        f"{'TV (chance)':>24}  verdict"
    )
    for proof in (*report.proofs, report.control):
        fit = proof.fit
        tv = f"{fit.total_variation:.3f} ({fit.chance[1]:.3f} to {fit.chance[2]:.3f})"
        count = f"{_departures(proof)} ({proof.unexplained})"
        agree = _percent(_agreement(proof.texts))
        yield (
            f"{proof.name:24} {_compared(proof):>7,} {count:>12} {agree:>18} "
            f"{fit.chi_square_p:>13.3f} {tv:>24}  {status(report, proof)}"
        )
    yield ""
    yield verdict(report)
    yield from given_up(report)
    yield (
        "(departures: texts that part from ordinary decoding's, in brackets those that rounding "
        "does not explain; TV: total variation to the target's own law of the first tokens, and "
        "what chance alone shows)"
    )


def status(report: Report, proof: Proof) -> str:
    """What is said of one controller; of the control, whether it was caught."""
    if proof is report.control:
        return "caught, as it must be" if report.is_caught else "NOT CAUGHT"
    return proof.status.upper() if proof.status == BROKEN else proof.status


def verdict(report: Report) -> str:
    """One sentence or two for all."""
    by_status: dict[str, list[str]] = {}
    for proof in report.proofs:
        by_status.setdefault(proof.status, []).append(proof.name)
    parts = []
    for name, one, several in (
        (BROKEN, "changes what the target says", "change what the target says"),
        (LOSSLESS, "says what the target says", "say what the target says"),
        (LOSSY, "is lossy by a margin of its own", "are lossy by margins of their own"),
        (IDLE, "accepted no draft: nothing was tested", "accepted no draft: nothing was tested"),
    ):
        if name in by_status:
            names = by_status[name]
            parts.append(f"{joined(names)} {one if len(names) == 1 else several}")
    caught = "" if report.is_caught else "; the control was not caught: ask for more draws"
    return f"{'; '.join(parts)}{caught}."


def given_up(report: Report) -> list[str]:
    """What lossy settings cost the text, and what another number format alone does."""
    told = [_gave_up(proof) for proof in report.proofs if proof.status == LOSSY]
    if report.floor is not None:
        share = _agreement(report.floor.texts)["value"]
        told.append(
            f"ordinary decoding in {report.floor.dtype} keeps {100 * share:.0f} % of the tokens of "
            f"that in {report.dtype}"
        )
    return told


def _gave_up(proof: Proof) -> str:
    served, agree = proof.served, _agreement(proof.texts)
    share, each = served.let_through / served.emitted, served.given_up / served.let_through
    return (
        f"{proof.name} let through {100 * share:.1f} % of its tokens, each {each:.2f} nats below "
        f"the target's choice; {100 * agree['value']:.0f} % of all tokens are those of the "
        "lossless run"
    )


def summary(report: Report) -> dict[str, Any]:
    """What the part's JSON holds besides what it was made with."""
    return {
        "verdict": verdict(report),
        "holds": report.holds,
        "pair": report.pair,
        "dtype": report.dtype,
        "beginnings": len(report.law.beginnings),
        "entropy_nats": report.law.entropy_nats,
        "controllers": {p.name: _proof(report, p) for p in report.proofs},
        "control": {**_proof(report, report.control), "name": report.control.name},
        "floor": None if report.floor is None else _floor(report.floor),
        "notes": given_up(report),
    }


def rows(report: Report) -> list[dict[str, Any]]:
    """One a text."""
    return [
        {"controller": proof.name, **asdict(one)}
        for proof in (*report.proofs, report.control)
        for one in proof.texts
    ]


def _proof(report: Report, proof: Proof) -> dict[str, Any]:
    fit, served = proof.fit, proof.served
    return {
        "status": status(report, proof),
        "compared_tokens": _compared(proof),
        "departures": _departures(proof),
        "unexplained": proof.unexplained,
        "largest_gap": max((t.gap for t in proof.texts if t.gap is not None), default=0.0),
        "departures_per_100k": _per_100k(_departures(proof), _compared(proof)),
        "agreement": _agreement(proof.texts),
        "agreement_by": {how: _agreement([t for t in proof.texts if t.how == how]) for how in HOW},
        "tokens_per_iteration": served.tokens_per_iteration,
        "let_through": served.let_through / max(served.emitted, 1),
        "given_up_nats": served.given_up / max(served.let_through, 1),
        "draws": fit.draws,
        "chi_square_p": fit.chi_square_p,
        "total_variation": fit.total_variation,
        "chance_variation": dict(zip(("value", "low", "high"), fit.chance, strict=True)),
        "p": proof.p,
        "impossible": fit.impossible,
    }


def _floor(floor: Floor) -> dict[str, Any]:
    return {"dtype": floor.dtype, "agreement": _agreement(floor.texts)}


def _departures(proof: Proof) -> int:
    return sum(one.departs for one in proof.texts)


def _compared(proof: Proof) -> int:
    return sum(one.tokens for one in proof.texts)


def _agreement(texts: Sequence[Compared]) -> Figure:
    """Share of places at which both say the same, over the texts."""
    return figure(mean_interval([t.equal for t in texts], np.random.default_rng(0)), 0.0, 1.0)


def _percent(share: Figure) -> str:
    """With its interval, unless nothing bounds it, as of one text."""
    value, low, high = (100 * share[key] for key in ("value", "low", "high"))
    return f"{value:.1f}" + (f" [{low:.1f}, {high:.1f}]" if math.isfinite(low + high) else "")


def _per_100k(count: int, of: int) -> Figure:
    """A rate with its exact Poisson interval (Garwood)."""
    low = stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    high = stats.chi2.ppf(0.975, 2 * count + 2) / 2
    value, low, high = (PER * float(x) / max(of, 1) for x in (count, low, high))
    return {"value": value, "low": low, "high": high}
