"""Overload as a defined state: more progress is promised than this machine makes.

The test, after every iteration: the tokens per second that the objectives of the decoding requests
demand together exceed what the machine offers them. A request demands 1 / its TPOT objective, or
the tokens that it may still emit over the time to its completion objective, whichever is more. One
without objectives demands nothing, nor does a completion objective that is missed already or would
take more than one slot can ever get, a whole path of the deepest tree in every unloaded step: as
its end comes near, what cannot be helped would else drown all that can. Offered is what a decoding
request got per second of late, times the requests that decode now: counting per request keeps a
batch that has just grown from looking overloaded. The field's engines leave the state undefined
(research/slo_serving.md section 1.8), so test, constants and policies are ours.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.ledger import Ledger
from engine.protocol import Bools, Floats, Ints, Plan
from engine.request import Request
from engine.scheduler import Scheduler

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
        self,
        rule: OverloadRule,
        ledger: Ledger,
        scheduler: Scheduler,
        classes: ClassTable,
        unloaded_tpot_s: float,
        max_depth: int,
    ) -> None:
        self.rule, self.ledger, self.scheduler, self.classes = rule, ledger, scheduler, classes
        self.priority = np.array([c.priority for c in classes.classes])
        self.progress_age_s = rule.progress_age_ratio * unloaded_tpot_s
        self.progress_tpot_s = rule.progress_tpot_ratio * unloaded_tpot_s
        self.most_tps = (max_depth + 1) / unloaded_tpot_s
        """Tokens per second that one slot could get at the very best."""
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
        """What the last iteration brought a decoding request on average, and how long that took.

        Prompts that were read before anybody decoded held nobody up: they do not belong to it.
        """
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
        return self._demand_in(self.ledger.slots.decoding[0], clock_s)

    def _demand_in(self, held: Bools, clock_s: float) -> Floats:
        """[S] likewise of the requests in the slots `held`."""
        s = self.ledger.slots
        demand = np.where(held, 1.0 / np.where(held, s.tpot_objective_s[0], 1.0), 0.0)
        if np.isfinite(self.ledger.completion_objectives_s).any():
            for slot in np.flatnonzero(held).tolist():
                due_s = float(s.arrival_s[0, slot]) + self._completion_s(slot)
                left = int(s.max_tokens[0, slot] - s.emitted[0, slot])
                demand[slot] = self._attainable(demand[slot], pace_tps(left, due_s - clock_s))
        return demand

    def _attainable(self, tpot_tps: float, completion_tps: float) -> float:
        """The larger demand of the two, of completion only while one slot could meet it."""
        return max(tpot_tps, completion_tps) if completion_tps <= self.most_tps else tpot_tps

    def offered_tps(self) -> float:
        """Tokens per second that the requests which decode now may expect together."""
        if self._seconds <= 0:
            return float("inf")
        return self._tokens / self._seconds * int(self.ledger.slots.decoding[0].sum())

    # -- reject --------------------------------------------------------------------------------

    def rejected(self, newcomers: Sequence[Request], clock_s: float) -> list[Request]:
        """Of those who have just come, and wait already, the ones that cannot be served.

        One cannot be served when what it demands and what is demanded at its priority or above,
        by those who decode, read their prompts or wait and by newcomers let in before it, exceed
        the offer. Without objectives it always can: it waits. The highest priority is asked first.
        """
        if not self._applies("reject"):
            return []
        s, offered = self.ledger.slots, self.offered_tps()
        demand = np.zeros(len(self.priority))  # by class
        np.add.at(demand, s.slo_class[0], self._demand_in(s.active[0], clock_s))
        fresh = {request.id for request in newcomers}
        for entry in self.scheduler.waiting:
            if entry.request.id not in fresh:
                tpot_tps, completion_tps = self._demand_of(entry.request, clock_s)
                demand[entry.request.slo_class] += self._attainable(tpot_tps, completion_tps)
        turned_away = []
        for request in sorted(newcomers, key=lambda r: -self.priority[r.slo_class]):
            c = request.slo_class
            tpot_tps, completion_tps = self._demand_of(request, clock_s)
            # What no slot could ever meet counts here: it is the very arrival to turn away.
            own = max(tpot_tps, completion_tps)
            if own > 0 and demand[self.priority >= self.priority[c]].sum() + own > offered:
                turned_away.append(request)
                self.counts["rejected"][c] += 1
            else:
                demand[c] += self._attainable(tpot_tps, completion_tps)
        return turned_away

    def _demand_of(self, request: Request, clock_s: float) -> tuple[float, float]:
        """Tokens per second that TPOT and completion objective of one without a slot demand."""
        c = request.slo_class
        due_s = request.arrival_s + float(self.ledger.completion_objectives_s[c])
        parked = self.ledger.parked.get(request.id)
        left = request.max_tokens - (0 if parked is None else int(parked.emitted))
        return 1.0 / float(self.ledger.tpot_objectives_s[c]), pace_tps(left, due_s - clock_s)

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

    def _completion_s(self, slot: int) -> float:
        """The largest completion objective of all classes by which the request has been served.

        Classes are in order of TPOT alone, and a move that brought an earlier end would add demand.
        """
        objectives_s = self.ledger.completion_objectives_s
        c, steered_by = int(self.ledger.slots.slo_class[0, slot]), self._steered_by(slot)
        largest_s = float(objectives_s[c])
        while c != steered_by:
            c = self.classes.next_looser(c)
            largest_s = max(largest_s, float(objectives_s[c]))
        return largest_s

    # -- minimum-progress ----------------------------------------------------------------------

    def must_yield_slot(self, waiting_since_s: float, clock_s: float) -> int | None:
        """The slot to free for a request that has waited since then; None while there is none.

        Of those who decode, whoever holds a slot longest gives it up, once that is as long as
        anybody may wait. Who still reads its prompt keeps its slot: what it has read would be lost,
        and a long prompt might never get through. So every turn in a slot emits at least a token,
        and lasts for an age or, where that takes longer, for reading and one iteration; with k
        requests ahead of it on S slots a request waits for at most (k // S + 1) such turns and
        whatever the iterations then under way take.
        """
        decoding = np.flatnonzero(self.ledger.slots.decoding[0]).tolist()
        if not decoding or clock_s - waiting_since_s < self.most_age_s:
            return None
        entered_s = self.ledger.slots.entered_s[0]
        slot = min(decoding, key=lambda slot: (entered_s[slot], slot))
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


def pace_tps(tokens: int, left_s: float) -> float:
    """Tokens per second that emit so many in the time left; inf once there is none."""
    return tokens / left_s if left_s > 0 else float("inf")
