"""What an environment's step earns: tokens in time, against the time that they took.

Time is rewarded, not acceptance (ALGORITHMS.md §14): a tree that is accepted more often and costs
more than it brings earns less. The parts stay visible in `info["reward/…"]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from engine.errors import UserError
from engine.protocol import Outcome
from engine.request import RequestRecord

STAGES = ("prefill", "draft", "select", "verify", "controller", "other")


@dataclass
class Tally:
    """What the iterations of one step brought together."""

    iterations: int = 0
    busy_s: float = 0.0
    """Engine time of the iterations; gaps with nothing to serve are not in it."""
    emitted_tokens: int = 0
    valid_tokens: int = 0
    """Emitted tokens that kept to their request's objective."""
    energy_joules: float = 0.0
    stages_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """Where the busy time went."""
    ended: list[RequestRecord] = field(default_factory=list)
    """Requests that ended within the step."""

    def add(self, outcome: Outcome) -> None:
        """Count one more iteration."""
        self.iterations += 1
        self.busy_s += outcome.iteration_s
        self.emitted_tokens += int(outcome.accepted_length.sum())
        self.valid_tokens += int(outcome.valid_tokens.sum())
        self.energy_joules += outcome.energy_joules
        for stage in STAGES:
            self.stages_s[stage] += getattr(outcome, f"{stage}_s")

    @property
    def missed(self) -> int:
        """Requests that ended without meeting all objectives; those withdrawn are left out."""
        return sum(record.has_objective and not record.attained for record in self.ended)


@dataclass(frozen=True)
class GoodputReward:
    """Reward of a step, per slot so that its scale does not hang on the batch size.

    "integral" (default): (valid - violation_tokens · missed) / slots - price · busy time in
    unloaded token times. For a trainer that discounts by elapsed time (γ^τ): summed over any split
    of a stretch of time it is the same. The price shifts every policy's return by nearly the same
    amount, so it hardly moves the optimum; it gives a step its cost in time at once, before a
    value function has learned it.

    "rate": (valid - violation_tokens · missed) / slots per unloaded token time. For a trainer with
    one γ a step; under γ^τ it would favour short steps, which collect more rates a second.
    """

    form: Literal["integral", "rate"] = "integral"
    violation_tokens: float = 8.0
    """Valid tokens that a missed request costs (ours)."""
    price: float = 0.2
    """Valid tokens per slot that an unloaded token time is worth, in the integral form (ours)."""

    def __post_init__(self) -> None:
        if self.form not in ("integral", "rate"):
            raise UserError(f"reward: form is {self.form!r}; expected integral or rate")
        for name in ("violation_tokens", "price"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise UserError(f"reward: {name} is {value}; expected a number of at least 0")

    def parts(self, tally: Tally, unloaded_tpot_s: float, slots: int) -> dict[str, float]:
        """The summands: valid, violations, time. Tokens per slot ("rate": and token time)."""
        token_times = tally.busy_s / unloaded_tpot_s
        scale = 1.0 / slots
        if self.form == "rate":
            scale = scale / token_times if token_times > 0 else 0.0
        return {
            "valid": tally.valid_tokens * scale,
            "violations": -self.violation_tokens * tally.missed * scale,
            "time": -self.price * token_times if self.form == "integral" else 0.0,
        }


def serving_summary(
    records: Sequence[RequestRecord], class_names: Sequence[str], drained: bool
) -> dict[str, float]:
    """Figures of an episode under ALGORITHMS.md §10; nan where there is nothing to count.

    An episode cut while the trace goes on (`drained` False) leaves unfinished requests out of
    attainment, since nobody knows yet; at the end of a trace they are misses.
    """
    counted = [r for r in records if r.has_objective and (drained or r.status != "unfinished")]
    begin = min((r.arrival_s for r in records), default=0.0)
    span_s = max((r.finish_s for r in records), default=0.0) - begin

    def per_second(tokens: int) -> float:
        return tokens / span_s if span_s > 0 else float("nan")

    summary = {
        "requests": float(len(records)),
        "unfinished": float(sum(r.status == "unfinished" for r in records)),
        "attainment": _share([r.attained for r in counted]),
        "goodput_tps": per_second(sum(r.good_tokens for r in counted)),
        "valid_tps": per_second(sum(r.valid_tokens for r in records)),
        "throughput_tps": per_second(sum(r.output_tokens for r in records)),
        "span_s": float(span_s),
    }
    for index, name in enumerate(class_names):
        own = [r.attained for r in counted if r.slo_class == index]
        summary[f"attainment/{name}"] = _share(own)
    return summary


def _share(met: Sequence[bool]) -> float:
    return sum(met) / len(met) if met else float("nan")
