"""The tables of a comparison as Markdown and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from eval.fidelity.course import Report, Told
from eval.fidelity.ranking import Pair


def told(report: Report, with_stages: bool = False) -> Iterator[str]:
    """All that came out, line by line; with where an iteration's time goes, if that is wanted."""
    yield "| case | controller | figure | live | replay | error | live runs apart | bar | holds |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    yield from map(_line, report.lines)
    if with_stages:
        yield from map(_line, report.stages)
    held = sum(t.line.holds for t in report.judged)
    yield f"\n{held} of {len(report.judged)} judged lines hold."
    if report.pairs:
        yield "\n| metric | controllers | live difference | replay | on live | holds |"
        yield "| --- | --- | ---: | ---: | --- | --- |"
        yield from map(_pair, report.pairs)
        agree = sum(p.holds for p in report.pairs)
        yield f"\n{agree} of {len(report.pairs)} pairs hold."
    if report.drift:
        scales = "; ".join(map(str, report.drift))
        yield f"\nMachine over profile, {len(report.drift[0].rounds)} rounds: {scales}."


def as_json(report: Report) -> dict[str, Any]:
    """Plain data; what is not finite (a bar that is none, an interval of nothing) is None."""
    return {
        "lines": [_plain(t) for t in report.lines],
        "stages": [_plain(t) for t in report.stages],
        "ranking": [
            _finite(asdict(p) | {"live": asdict(p.live), "holds": p.holds}) for p in report.pairs
        ],
        "drift": [
            _finite({"stage": d.stage, "rounds": list(d.rounds), "totals": list(d.totals)})
            for d in report.drift
        ],
        "profile_measured_at": report.profile.measured_at if report.profile else None,
    }


def _plain(t: Told) -> dict[str, Any]:
    of = {"case": t.case, "controller": t.controller, "judged": t.judged}
    return _finite({**of, **asdict(t.line), "holds": t.line.holds})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(t: Told) -> str:
    line = t.line
    holds = ("yes" if line.holds else "NO") if t.judged else "reported"
    unit = 1e3 if "T" in line.figure or "time" in line.figure else 1.0
    bar = f"{line.bar:.1%}" if line.is_judged else "–"
    return (
        f"| {t.case} | {t.controller} | {line.figure}{' (ms)' if unit > 1 else ''} "
        f"| {unit * line.live:.3g} | {unit * line.replay:.3g} | {line.error:+.1%} "
        f"| {line.noise:.1%} | {bar} | {holds} |"
    )


def _pair(p: Pair) -> str:
    interval = f"{p.live.mean:+.3g} ({p.live.low:+.3g} to {p.live.high:+.3g}) {p.unit}"
    if not p.live.excludes_zero:
        sign = "no difference shown"
    else:
        sign = "the same sign" if p.holds else "ANOTHER SIGN"
    return (
        f"| {p.metric} | {p.first} - {p.second} | {interval} | {p.replay:+.3g} | {sign} "
        f"| {'yes' if p.holds else 'NO'} |"
    )
