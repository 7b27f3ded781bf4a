"""What an environment's step earns: tokens in time, against the time that they took.

Time is rewarded, not acceptance (ALGORITHMS.md §14): a tree that is accepted more often and costs
more than it brings earns less. What else may be paid for (lateness, waiting, energy, changes of
plan) costs nothing by default. The parts stay visible in `info["reward/…"]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.protocol import Outcome, View
from engine.request import RequestRecord
from policies.features import class_token_s

STAGES = ("prefill", "draft", "select", "verify", "controller", "other")
PARTS = ("valid", "violations", "time", "tail", "waiting", "energy", "switching")
"""Of a reward, in this order."""
MOST_LATE_TOKENS = 32.0
"""Further behind its objective no request's lateness grows: it is lost."""
MOST_WAITING_TOKENS = 1024.0
"""Token times (by the class's objective) after which waiting is as bad as it gets."""


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


class Standing(NamedTuple):
    """How requests stand when a step is over."""

    late_tokens: float = 0.0
    """Tokens behind the objective, summed over those who decode, MOST_LATE_TOKENS of each."""
    waiting: float = 0.0
    """Share of MOST_WAITING_TOKENS that who waits longest has waited, of all classes the most."""


AT_EASE = Standing()
"""Nobody is late and nobody waits."""


def standing_of(view: View, minds_lateness: bool = True) -> Standing:
    """How requests stand, by what a controller would see now; nobody is late who is not minded."""
    waited = view.oldest_queued_s / class_token_s(view)
    waiting = min(float(waited.max()) / MOST_WAITING_TOKENS, 1.0)
    if not minds_lateness:
        return Standing(waiting=waiting)
    late = np.minimum(np.maximum(-view.slack_tokens, 0.0), MOST_LATE_TOKENS)
    # One after the other, as the fleet's kernel adds.
    total = np.cumsum(np.where(view.active, late, 0.0))
    return Standing(float(total[-1]), waiting)


@dataclass(frozen=True)
class GoodputReward:
    """Reward of a step, per slot so that its scale does not hang on the batch size.

    "integral" (default): (valid - violation_tokens · missed) / slots - price · busy time in
    unloaded token times. For a trainer that discounts by elapsed time (γ^τ): summed over any split
    of a stretch of time it is the same. The price gives a step its cost in time at once, before a
    value function has learned it; it is off, since at 0.2, at loads that can be met, it outweighed
    all else, and whoever is charged for busy time serves large batches that miss objectives.

    "rate": (valid - violation_tokens · missed) / slots per unloaded token time. For a trainer with
    one γ a step; under γ^τ it would favour short steps, which collect more rates a second.

    What follows these is off (0) until it is given a price.
    """

    form: Literal["integral", "rate"] = "integral"
    violation_tokens: float = 8.0
    """Valid tokens that a missed request costs (ours)."""
    price: float = 0.0
    """Valid tokens per slot that an unloaded token time is worth, in the integral form."""
    tail_price: float = 0.0
    """Valid tokens that a token time costs for each token by which a request is behind."""
    waiting_price: float = 0.0
    """Valid tokens per slot that a token time costs while somebody has waited as long as counts."""
    joule_tokens: float = 0.0
    """Valid tokens that a joule costs; modelled ones where power is modelled."""
    switch_tokens: float = 0.0
    """Valid tokens that it costs to change the plan of a class."""

    def __post_init__(self) -> None:
        if self.form not in ("integral", "rate"):
            raise UserError(f"reward: form is {self.form!r}; expected integral or rate")
        for field_ in fields(self)[1:]:
            value = getattr(self, field_.name)
            if not (np.isfinite(value) and value >= 0):
                raise UserError(
                    f"reward: {field_.name} is {value}; expected a number of at least 0"
                )

    @property
    def minds_standing(self) -> bool:
        """Whether lateness or waiting cost anything."""
        return self.tail_price > 0 or self.waiting_price > 0

    def parts(
        self,
        tally: Tally,
        unloaded_tpot_s: float,
        slots: int,
        standing: Standing = AT_EASE,
        switched: int = 0,
    ) -> dict[str, float]:
        """The summands by name, as PARTS. Tokens per slot ("rate": and token time).

        `standing` is that of the step's end, which holds for all of it; `switched` are the classes
        whose plan the step changed.
        """
        token_times = tally.busy_s / unloaded_tpot_s
        scale, lasting = 1.0 / slots, token_times
        if self.form == "rate":
            lasting = 1.0 if token_times > 0 else 0.0
            scale = scale / token_times if token_times > 0 else 0.0
        return {
            "valid": tally.valid_tokens * scale,
            "violations": -self.violation_tokens * tally.missed * scale,
            "time": -self.price * token_times if self.form == "integral" else 0.0,
            "tail": -self.tail_price * standing.late_tokens / slots * lasting,
            "waiting": -self.waiting_price * standing.waiting * lasting,
            "energy": -self.joule_tokens * tally.energy_joules * scale,
            "switching": -self.switch_tokens * switched * scale,
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
