"""A request on its way through the engine, and the record that it leaves.

Strings and token lists live here, beside the engine's arrays and never in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.errors import UserError
from engine.sampling.params import GREEDY, SamplingParams
from engine.state import MAX_STOPS


class Status(StrEnum):
    """How a request ended."""

    FINISHED = "finished"
    UNFINISHED = "unfinished"  # still queued or running when the episode was cut
    REJECTED = "rejected"  # the engine was overloaded and said so at once
    CANCELLED = "cancelled"  # its user withdrew it
    FAILED = "failed"  # its numbers were no numbers (NaN logits); others went on


@dataclass
class Request:
    """What a user asked for. Times are on the engine's clock."""

    id: int
    slo_class: int
    prompt: list[int]
    max_tokens: int
    arrival_s: float
    stop_ids: frozenset[int] = frozenset()
    output: list[int] = field(default_factory=list)
    stop_strings: tuple[str, ...] = ()
    """Texts that end the output; the token in which one is complete is the last."""
    cancel_at_s: float | None = None
    """When its user withdraws it; None for never."""
    sampling: SamplingParams = GREEDY
    logprobs: list[float] = field(default_factory=list)
    """Of the output's tokens, when `sampling` asks for them."""

    def check(self, context: int) -> None:
        """Raise UserError when the request cannot be served in a context of `context` tokens."""
        if not self.prompt:
            raise UserError(f"request {self.id}: the prompt is empty; expected at least one token")
        if self.max_tokens < 1:
            raise UserError(
                f"request {self.id}: max_tokens is {self.max_tokens}; expected at least 1"
            )
        if len(self.stop_ids) > MAX_STOPS:
            raise UserError(
                f"request {self.id} has {len(self.stop_ids)} stop tokens; at most {MAX_STOPS} are "
                "served"
            )
        if "" in self.stop_strings:
            raise UserError(
                f"request {self.id}: a stop string is empty; expected at least one character"
            )
        if self.cancel_at_s is not None and math.isnan(self.cancel_at_s):
            raise UserError(f"request {self.id}: cancel_at_s is nan; expected a time, or None")
        if len(self.prompt) + self.max_tokens > context:
            raise UserError(
                f"request {self.id}: prompt of {len(self.prompt)} tokens and {self.max_tokens} new "
                f"ones exceed the context of {context}; shorten the prompt or lower max_tokens"
            )


class RequestRecord(NamedTuple):
    """The ledger's line for one request; metrics are computed from these alone."""

    id: int
    slo_class: int
    status: Status
    prompt_tokens: int
    output_tokens: int
    arrival_s: float
    admitted_s: float  # nan when it never got a slot
    first_token_s: float  # nan when none was emitted
    finish_s: float  # end, or the cut of the episode
    tpot_s: float  # decode time / tokens after the first; nan for one-token answers
    tpot_objective_s: float  # inf without one
    ttft_objective_s: float  # inf without one
    valid_tokens: int  # token i emitted by first_token + i * objective
    iterations: int  # decoding iterations that it took part in
    verified_nodes: int
    completion_objective_s: float = float("inf")  # inf without one
    queue_age_objective_s: float = float("inf")  # inf without one
    preempted: int = 0  # times that it had to give its slot up
    degraded_to: int = -1  # class by whose objectives it was served in the end, -1 its own
    requeued_s: float = 0.0  # longest wait for the next slot after it gave one up
    max_tokens: int = 0  # tokens it may have emitted at most, 0 where that is not known
    gaps_s: tuple[float, ...] = ()  # between emissions, where somebody watched (eval/emissions.py)
    wasted_nodes: int = 0  # drafted for it and not accepted, likewise

    @property
    def ttft_s(self) -> float:
        """Arrival to first token."""
        return self.first_token_s - self.arrival_s

    @property
    def has_objective(self) -> bool:
        """Whether anything was promised; without an objective it is left out of attainment.

        So is what its user withdrew, unless it was overdue by then: else nobody knows whether its
        objectives would have been met.
        """
        if self.status is Status.CANCELLED and not self.overdue:
            return False
        objectives = (
            self.tpot_objective_s,
            self.ttft_objective_s,
            self.completion_objective_s,
            self.queue_age_objective_s,
        )
        return min(objectives) < float("inf")

    @property
    def overdue(self) -> bool:
        """Lost already, however it ended: no first token by its deadline, or too long decoding.

        Too long is more than the TPOT objective allows for as many tokens as it may emit.
        """
        began, end_s = not math.isnan(self.first_token_s), self.finish_s
        waited_s = (self.first_token_s if began else end_s) - self.arrival_s
        decoded_s = end_s - self.first_token_s if began and self.max_tokens > 1 else 0.0
        allowed_s = self.tpot_objective_s * max(self.max_tokens - 1, 1)
        return waited_s > self.ttft_objective_s or decoded_s > allowed_s

    @property
    def queue_age_s(self) -> float:
        """The longest of its waits for a slot: from arrival, and after every slot that it gave up.

        A wait that was not over lasted until the end.
        """
        end_s = self.finish_s if math.isnan(self.admitted_s) else self.admitted_s
        return max(end_s - self.arrival_s, self.requeued_s)

    @property
    def tpot_met(self) -> bool:
        """Mean TPOT within the objective; a one-token answer has no TPOT and counts as met."""
        if self.status is not Status.FINISHED:
            return False
        return self.output_tokens <= 1 or self.tpot_s <= self.tpot_objective_s

    @property
    def ttft_met(self) -> bool:
        """First token in time."""
        return self.status is Status.FINISHED and self.ttft_s <= self.ttft_objective_s

    @property
    def completion_met(self) -> bool:
        """Last token in time."""
        spent_s = self.finish_s - self.arrival_s
        return self.status is Status.FINISHED and spent_s <= self.completion_objective_s

    @property
    def queue_age_met(self) -> bool:
        """A slot in time, every time."""
        return self.status is Status.FINISHED and self.queue_age_s <= self.queue_age_objective_s

    @property
    def attained(self) -> bool:
        """All objectives met."""
        return self.tpot_met and self.ttft_met and self.completion_met and self.queue_age_met

    @property
    def good_tokens(self) -> int:
        """Tokens that count for goodput: all of its own where every objective was met, else none.

        Goodput is their sum over the time; without an objective there is nothing to be good at.
        """
        return self.output_tokens if self.has_objective and self.attained else 0
