"""The figures by which replay is compared with live, and when they are near enough.

Pure: records and outcomes in, errors and verdicts out. A bar is the larger of what ALGORITHMS.md
§11 and the issue set and twice the difference of two live runs, since no model can be nearer to a
machine than the machine is to itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.protocol import Ints
from engine.request import RequestRecord
from eval.metrics import attainment, goodput_tps

BARS = {
    "busy time per token": 0.03,
    "capacity": 0.03,
    "mean TPOT": 0.05,
    "p95 TPOT": 0.08,
    "mean TTFT": 0.15,
    "attainment": math.inf,
    "accepted length by position": 0.03,
}
"""Largest relative error of each figure; attainment is told and not judged."""
FEW = 30
"""Offers below which a position's acceptance is too uncertain to be compared."""


@dataclass(frozen=True)
class Measured:
    """One run under one controller."""

    busy_s: float
    """Time of its iterations, prompts included."""
    tokens: int
    """Emitted, first tokens included."""
    requests_per_s: float
    """Over its whole span: the capacity, where all requests came at once."""
    tpots_s: tuple[float, ...]
    ttfts_s: tuple[float, ...]
    proposed: Ints
    """[D] how often each position was offered."""
    accepted: Ints
    """[D] how often it was accepted."""
    stages_s: Mapping[str, float] = field(default_factory=dict)
    """Of a mean iteration."""
    attainment: float = math.nan
    """Share of requests that kept their objectives, nan where none has one."""
    goodput_tps: float = math.nan
    """Tokens of these requests a second."""


def measured(
    records: Sequence[RequestRecord],
    busy_s: float,
    proposed: Ints,
    accepted: Ints,
    stages_s: Mapping[str, float],
) -> Measured:
    """Sum up a run that was drained."""
    span_s = max(r.finish_s for r in records) - min(r.arrival_s for r in records)
    return Measured(
        busy_s=busy_s,
        tokens=sum(r.output_tokens for r in records),
        requests_per_s=len(records) / span_s,
        tpots_s=tuple(r.tpot_s for r in records if math.isfinite(r.tpot_s)),
        ttfts_s=tuple(r.ttft_s for r in records),
        proposed=proposed,
        accepted=accepted,
        stages_s=stages_s,
        attainment=attainment(records),
        goodput_tps=goodput_tps(records),
    )


def figures(run: Measured, is_drain: bool) -> dict[str, float]:
    """By name, without the positions. Where everybody came at once, capacity stands for latency."""
    per_token = {"busy time per token": run.busy_s / run.tokens}
    if is_drain:
        return {**per_token, "capacity": run.requests_per_s}
    kept = {} if math.isnan(run.attainment) else {"attainment": run.attainment}
    return {
        **per_token,
        "mean TPOT": float(np.mean(run.tpots_s)),
        "p95 TPOT": float(np.quantile(run.tpots_s, 0.95)),
        "mean TTFT": float(np.mean(run.ttfts_s)),
        **kept,
    }


@dataclass(frozen=True)
class Line:
    """One figure, live against replay."""

    figure: str
    live: float
    """Mean of the live runs."""
    replay: float
    error: float
    """(replay - live) / live."""
    noise: float
    """Largest difference of two live runs over their mean."""
    bar: float
    """The larger of the figure's own and twice the noise."""

    @property
    def holds(self) -> bool:
        """Whether replay is near enough."""
        return abs(self.error) <= self.bar

    @property
    def is_judged(self) -> bool:
        """Whether there is a bar."""
        return math.isfinite(self.bar)


def compared(live: Sequence[Measured], replay: Measured, is_drain: bool) -> list[Line]:
    """Every figure of two or more live runs of the same requests, and of their replay."""
    if len(live) < 2:
        raise ValueError(f"{len(live)} live runs; expected two or more, to know their difference")
    by_run = [figures(run, is_drain) for run in live]
    replayed = figures(replay, is_drain)
    lines = [_line(name, [run[name] for run in by_run], value) for name, value in replayed.items()]
    return lines + _positions(live, replay)


def stages(live: Sequence[Measured], replay: Measured) -> list[Line]:
    """Where an iteration's time goes on both, for whoever looks for the term that is wrong."""
    return [
        Line(
            f"time of {name}",
            mean := float(np.mean([run.stages_s[name] for run in live])),
            value,
            (value - mean) / mean if mean else 0.0,
            float(np.ptp([run.stages_s[name] for run in live])) / mean if mean else 0.0,
            math.inf,
        )
        for name, value in replay.stages_s.items()
    ]


def _positions(live: Sequence[Measured], replay: Measured) -> list[Line]:
    """The position whose share of accepted offers errs most; none where nothing was drafted."""
    rates = [_rates(run) for run in live]
    replayed = _rates(replay)
    known = np.isfinite(replayed) & np.isfinite(rates).all(0)
    lines = [
        _line("accepted length by position", [rate[i] for rate in rates], float(replayed[i]))
        for i in np.flatnonzero(known).tolist()
    ]
    return [max(lines, key=lambda line: abs(line.error) - line.bar)] if lines else []


def _rates(run: Measured) -> np.ndarray:
    """[D] tokens that each position brought an offered root, nan where it was hardly offered."""
    often = run.proposed >= FEW
    return np.where(often, run.accepted / np.maximum(run.proposed, 1), np.nan)


def _line(name: str, live: Sequence[float], replay: float) -> Line:
    mean = float(np.mean(live))
    if mean == 0:  # nothing was ever accepted there, on live
        error, noise = (0.0 if replay == 0 else math.inf), 0.0
    else:
        error, noise = (replay - mean) / mean, (max(live) - min(live)) / mean
    return Line(name, mean, replay, error, noise, max(BARS[name], 2 * noise))
