"""Overload as a defined state: more progress is promised than this machine makes.

The test, after every iteration: the tokens per second that the objectives of the decoding requests
demand together exceed what the machine offers them. A request demands 1 / its TPOT objective, or
the tokens that it may still emit over the time to its completion objective, whichever is more; one
without objectives, or whose completion objective is missed already, demands nothing by it. Offered
is what a decoding request got per second of late, times the requests that decode now: counting
per request keeps a batch that has just grown from looking overloaded. The field's engines leave the
state undefined (research/slo_serving.md section 1.8), so test, constants and policies are ours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.ledger import Ledger
from engine.protocol import Bools, Floats, Ints, Plan
from engine.request import Request

log = logging.getLogger(__name__)

PolicyName = Literal["none", "reject", "degrade", "minimum-progress"]
COUNTS = ("overloaded", "rejected", "degraded", "sliced", "yielded")


@dataclass(frozen=True)
class OverloadRule:
    """When the engine is overloaded and what it does then."""

    policy: PolicyName = "none"
    """none: only say so. reject: turn away arrivals that cannot be served. degrade: serve running
    requests by the next looser class's objectives. minimum-progress: bound starvation."""
    enter_ratio: float = 1.1
    """Demanded over offered tokens per second above which the state begins."""
    leave_ratio: float = 1.0
    """The same ratio at or below which it ends; not above `enter_ratio`, lest it flicker."""
    decay: float = 0.8
    """Weight of the past in the offered rate, per iteration."""
    warm_up_iterations: int = 10
    """Iterations before the first judgement."""
    progress_age_ratio: float = 200.0
    """minimum-progress: how long anybody waits before a running request must make room, if that
    has held its slot for as long; in unloaded token times."""
    progress_tpot_ratio: float = 10.0
    """minimum-progress: the time per token, likewise, that every running request is held to;
    while one is slower, those ahead of it are not speculated for."""

    def __post_init__(self) -> None:
        if self.policy not in get_args(PolicyName):
            raise UserError(
                f"overload policy is {self.policy!r}; expected one of "
                f"{', '.join(get_args(PolicyName))}"
            )
        if not 0 < self.leave_ratio <= self.enter_ratio:
            raise UserError(
                f"overload: leave_ratio is {self.leave_ratio} and enter_ratio {self.enter_ratio}; "
                "expected 0 < leave_ratio <= enter_ratio"
            )
        if not 0 <= self.decay < 1:
            raise UserError(f"overload: decay is {self.decay}; expected 0 to below 1")
        if not (self.progress_age_ratio > 0 and self.progress_tpot_ratio > 0):
            raise UserError("overload: progress ratios must be above 0")


class Overload:
    """Watches demand and offer, and applies the rule's policy while demand is infeasible."""

    def __init__(
        self, rule: OverloadRule, ledger: Ledger, classes: ClassTable, unloaded_tpot_s: float
    ) -> None:
        self.rule, self.ledger, self.classes = rule, ledger, classes
        self.priority = np.array([c.priority for c in classes.classes])
        self.progress_age_s = rule.progress_age_ratio * unloaded_tpot_s
        self.progress_tpot_s = rule.progress_tpot_ratio * unloaded_tpot_s
        self.active = False
        """Whether the engine is overloaded now."""
        self.entries = 0
        """How often it became so."""
        self.counts: dict[str, Ints] = {
            name: np.zeros(len(classes.classes), np.int64) for name in COUNTS
        }
        """By class: requests that decoded when the state began (overloaded), arrivals turned away,
        moves to a looser class, slots given up to the queue (sliced), and iterations of requests
        that went without speculation for others (yielded)."""
        self._iterations = 0
        self._tokens = self._seconds = 0.0

    @property
    def most_age_s(self) -> float:
        """How long a request of any class may wait now before it goes first."""
        return self.progress_age_s if self._applies("minimum-progress") else float("inf")

    def observe(self, tokens_per_request: float, iteration_s: float) -> None:
        """What the last iteration brought a decoding request on average, and its length."""
        keep = self.rule.decay if self._iterations else 0.0
        self._tokens = keep * self._tokens + (1 - keep) * tokens_per_request
        self._seconds = keep * self._seconds + (1 - keep) * iteration_s
        self._iterations += 1

    def update(self, clock_s: float) -> None:
        """Enter or leave the state, and degrade where that is the policy."""
        demand, offered = self.demand_tps(clock_s), self.offered_tps()
        total = float(demand.sum())
        if self.active:
            self.active = total > self.rule.leave_ratio * offered
        elif self._iterations >= self.rule.warm_up_iterations:
            self.active = total > self.rule.enter_ratio * offered
            if self.active:
                self._enter(total, offered)
        if self._applies("degrade"):
            self._degrade(clock_s, total, offered)

    def demand_tps(self, clock_s: float) -> Floats:
        """[S] tokens per second that the objectives of each decoding request demand."""
        s = self.ledger.slots
        decoding = s.decoding[0]
        demand = np.where(decoding, 1.0 / np.where(decoding, s.tpot_objective_s[0], 1.0), 0.0)
        completion_s = self.ledger.completion_objectives_s
        if np.isfinite(completion_s).any():
            for slot in np.flatnonzero(decoding).tolist():
                left_s = s.arrival_s[0, slot] + completion_s[self._steered_by(slot)] - clock_s
                if left_s > 0:
                    left = s.max_tokens[0, slot] - s.emitted[0, slot]
                    demand[slot] = max(demand[slot], left / left_s)
        return demand

    def offered_tps(self) -> float:
        """Tokens per second that the requests which decode now may expect together."""
        if self._seconds <= 0:
            return float("inf")
        return self._tokens / self._seconds * int(self.ledger.slots.decoding[0].sum())

    # -- reject --------------------------------------------------------------------------------

    def rejected(self, newcomers: Iterable[Request], clock_s: float) -> list[Request]:
        """Of those who have just come, the ones whose class cannot be served.

        A class cannot be served when what it demands and what running requests of its priority or
        a higher one demand exceed the offer. A class without objectives always can: it waits.
        """
        if not self._applies("reject"):
            return []
        demand, offered = self.demand_tps(clock_s), self.offered_tps()
        running = self.priority[self.ledger.slots.slo_class[0]]
        turned_away = []
        for request in newcomers:
            c = request.slo_class
            completion_s = self.ledger.completion_objectives_s[c]
            own = max(1.0 / self.ledger.tpot_objectives_s[c], request.max_tokens / completion_s)
            if own > 0 and demand[running >= self.priority[c]].sum() + own > offered:
                turned_away.append(request)
                self.counts["rejected"][c] += 1
        return turned_away

    # -- degrade -------------------------------------------------------------------------------

    def _degrade(self, clock_s: float, total: float, offered: float) -> None:
        """Move requests to the next looser class until the demand is feasible.

        The lowest priority first, then the loosest objective, then whoever came last.
        """
        s, ledger = self.ledger.slots, self.ledger
        while total > self.rule.leave_ratio * offered:
            movable = [
                slot
                for slot in np.flatnonzero(s.decoding[0]).tolist()
                if self.classes.next_looser(self._steered_by(slot)) >= 0
            ]
            if not movable:
                return
            slot = min(
                movable,
                key=lambda slot: (
                    self.priority[s.slo_class[0, slot]],
                    -s.tpot_objective_s[0, slot],
                    -s.arrival_s[0, slot],
                ),
            )
            ledger.degrade(slot, self.classes.next_looser(self._steered_by(slot)))
            self.counts["degraded"][s.slo_class[0, slot]] += 1
            total = float(self.demand_tps(clock_s).sum())

    def _steered_by(self, slot: int) -> int:
        """The class by whose objectives the slot's request is served."""
        request = int(self.ledger.slots.request[0, slot])
        return self.ledger.degraded_to.get(request, int(self.ledger.slots.slo_class[0, slot]))

    # -- minimum-progress ----------------------------------------------------------------------

    def must_yield_slot(self, waiting_since_s: float, clock_s: float) -> int | None:
        """The slot to free for a request that has waited since then; None while there is none.

        Whoever holds a slot longest gives it up, once that is as long as anybody may wait. So with
        k requests ahead of it on S slots a request waits for at most (k // S + 1) ages and
        whatever the iterations then under way take.
        """
        if not self.ledger.running or clock_s - waiting_since_s < self.most_age_s:
            return None
        entered_s = self.ledger.slots.entered_s[0]
        slot = min(self.ledger.running, key=lambda slot: (entered_s[slot], slot))
        return slot if clock_s - entered_s[slot] >= self.most_age_s else None

    def count_slice(self, slot: int) -> None:
        """The slot's request has given it up to the queue."""
        self.counts["sliced"][self.ledger.slots.slo_class[0, slot]] += 1

    def spare(self, plan: Plan, decoding: Bools, clock_s: float) -> Plan:
        """No speculation for requests ahead of the minimum rate while another is behind it."""
        if not self._applies("minimum-progress"):
            return plan
        s = self.ledger.slots
        due = (clock_s - s.first_token_s[0]) / self.progress_tpot_s
        behind = decoding & (s.emitted[0] - 1 < due)
        yielding = decoding & ~behind & (plan.depth > 0)
        if not behind.any() or not yielding.any():
            return plan
        np.add.at(self.counts["yielded"], s.slo_class[0][yielding], 1)
        return plan._replace(
            depth=np.where(yielding, 0, plan.depth), nodes=np.where(yielding, 0, plan.nodes)
        )

    # -- the state itself ----------------------------------------------------------------------

    def _applies(self, policy: PolicyName) -> bool:
        return self.active and self.rule.policy == policy

    def _enter(self, demand: float, offered: float) -> None:
        self.entries += 1
        s = self.ledger.slots
        np.add.at(self.counts["overloaded"], s.slo_class[0][s.decoding[0]], 1)
        log.log(
            logging.INFO if self.rule.policy == "none" else logging.WARNING,
            "overloaded: %.1f tokens/s are demanded and %.1f offered; policy %s",
            demand,
            offered,
            self.rule.policy,
        )
