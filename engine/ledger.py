"""From a slot's life to the line that stays: admission, first token, end, and what was met."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.classes import ClassTable
from engine.kernels.walk import is_stop
from engine.orders import Waiting
from engine.request import Request, RequestRecord, Status
from engine.state import SlotState


class Ledger:
    """Fills and empties slots of replica 0 and keeps a record of every request."""

    def __init__(self, slots: SlotState, classes: ClassTable, unloaded_tpot_s: float) -> None:
        self.slots = slots
        self.tpot_objectives_s = classes.tpot_objectives_s(unloaded_tpot_s)
        self.ttft_objectives_s = classes.ttft_objectives_s(unloaded_tpot_s)
        self.completion_objectives_s = classes.completion_objectives_s(unloaded_tpot_s)
        self.queue_age_objectives_s = classes.queue_age_objectives_s(unloaded_tpot_s)
        self.running: dict[int, Request] = {}
        """By slot, in order of admission."""
        self.parked: dict[int, SlotState] = {}
        """By request id, one slot's arrays as they were when it had to give the slot up."""
        self.parked_since_s: dict[int, float] = {}
        """When each of these gave it up."""
        self.preempted: dict[int, int] = {}
        """How often each request had to give its slot up."""
        self.requeued_s: dict[int, float] = {}
        """The longest that each of them has then waited for the next one."""
        self.degraded_to: dict[int, int] = {}
        """By request id, the class by whose objectives it is served instead of its own."""
        self.records: list[RequestRecord] = []

    def admit(self, slot: int, request: Request, clock_s: float) -> None:
        """Give the request a slot; one that had a slot before goes on where it was."""
        s = self.slots
        tokens = self.tokens_to_prefill(request)
        parked = self.parked.pop(request.id, None)
        if parked is None:
            self._begin(slot, request, clock_s)
        else:
            self._end_of_wait(request.id, clock_s)
            for array, kept in zip(s, parked, strict=True):
                array[0, slot] = kept
        self.running[slot] = request
        s.to_prefill[0, slot] = tokens
        s.active[0, slot], s.decoding[0, slot] = True, False
        s.entered_s[0, slot] = clock_s
        s.prefilled[0, slot] = s.context[0, slot] = 0

    def _begin(self, slot: int, request: Request, clock_s: float) -> None:
        s = self.slots
        request.logprobs = []
        s.request[0, slot], s.slo_class[0, slot] = request.id, request.slo_class
        s.prompt_tokens[0, slot] = len(request.prompt)
        s.max_tokens[0, slot] = request.max_tokens
        s.arrival_s[0, slot], s.admitted_s[0, slot] = request.arrival_s, clock_s
        s.promised_tpot_s[0, slot] = self.tpot_objectives_s[request.slo_class]
        steered_by = self.degraded_to.get(request.id, request.slo_class)
        s.tpot_objective_s[0, slot] = self.tpot_objectives_s[steered_by]
        s.ttft_objective_s[0, slot] = self.ttft_objectives_s[request.slo_class]
        s.stop[0, slot] = -1
        s.stop[0, slot, : len(request.stop_ids)] = sorted(request.stop_ids)
        s.text[0, slot, : len(request.prompt)] = request.prompt
        s.first_token_s[0, slot] = np.nan
        for counter in (s.emitted, s.valid_tokens, s.iterations, s.verified_nodes):
            counter[0, slot] = 0
        for history in (s.proposed, s.accepted, s.since_proposed):
            history[0, slot] = 0
        s.draft_confidence[0, slot] = s.draft_entropy[0, slot] = 0.0

    def first_token(self, slot: int, token: int, clock_s: float) -> bool:
        """The prompt is through; True when this token already ends the output."""
        s = self.slots
        s.decoding[0, slot] = True
        s.first_token_s[0, slot] = clock_s
        s.emitted[0, slot] = s.valid_tokens[0, slot] = 1
        s.last_token[0, slot] = token
        s.text[0, slot, s.prompt_tokens[0, slot]] = token
        return bool(s.max_tokens[0, slot] <= 1 or is_stop(token, s.stop[0, slot]))

    def output(self, slot: int) -> list[int]:
        """What the slot's request has emitted so far."""
        start = int(self.slots.prompt_tokens[0, slot])
        end = start + int(self.slots.emitted[0, slot])
        return self.slots.text[0, slot, start:end].tolist()

    def tokens_to_prefill(self, request: Request) -> int:
        """Tokens to process before the request decodes: its prompt, and what it had emitted."""
        parked = self.parked.get(request.id)
        emitted = 0 if parked is None else int(parked.emitted)
        # The root of its next tree is emitted but was never in the cache.
        return len(request.prompt) + max(emitted - 1, 0)

    def slot_of(self, request_id: int) -> int | None:
        """The slot that a request holds; None when it holds none."""
        return next((slot for slot, r in self.running.items() if r.id == request_id), None)

    def park(self, slot: int, clock_s: float, displaced: bool) -> Waiting:
        """Take the slot away; output and objectives are kept for the next admission."""
        s, request = self.slots, self.running.pop(slot)
        request.output = self.output(slot)
        self.parked[request.id] = SlotState(*(np.copy(array[0, slot]) for array in s))
        self.parked_since_s[request.id] = clock_s
        self.preempted[request.id] = self.preempted.get(request.id, 0) + 1
        s.active[0, slot] = s.decoding[0, slot] = False
        return Waiting(request, clock_s, displaced, started=bool(request.output))

    def _end_of_wait(self, request_id: int, clock_s: float) -> None:
        waited_s = clock_s - self.parked_since_s.pop(request_id)
        self.requeued_s[request_id] = max(waited_s, self.requeued_s.get(request_id, 0.0))

    def degrade(self, slot: int, slo_class: int) -> None:
        """Serve the slot's request by that class's TPOT objective from now on."""
        self.degraded_to[self.running[slot].id] = slo_class
        self.slots.tpot_objective_s[0, slot] = self.tpot_objectives_s[slo_class]

    def finish(self, slot: int, clock_s: float, status: Status = Status.FINISHED) -> None:
        """The request has ended: free the slot and write its record."""
        self.records.append(self._record(slot, status, clock_s))
        del self.running[slot]
        self.slots.active[0, slot] = self.slots.decoding[0, slot] = False

    def dismiss(self, request: Request, status: Status, clock_s: float) -> None:
        """The request has ended without holding a slot: write its record."""
        self.records.append(self._waiting_record(request, status, clock_s))
        self.parked.pop(request.id, None)
        self.parked_since_s.pop(request.id, None)

    def close(self, waiting: Iterable[Request], clock_s: float) -> list[RequestRecord]:
        """All records, with what runs or waits at `clock_s` as unfinished."""
        cut = [self._record(slot, Status.UNFINISHED, clock_s) for slot in self.running]
        queued = [self._waiting_record(r, Status.UNFINISHED, clock_s) for r in waiting]
        return self.records + cut + queued

    def _record(self, slot: int, status: Status, clock_s: float) -> RequestRecord:
        request = self.running[slot]
        request.output = self.output(slot)
        arrays = SlotState(*(array[0, slot] for array in self.slots))
        return self._line(request, arrays, status, clock_s)

    def _waiting_record(self, request: Request, status: Status, clock_s: float) -> RequestRecord:
        parked = self.parked.get(request.id)
        if parked is not None:
            waiting_s = clock_s - self.parked_since_s[request.id]
            return self._line(request, parked, status, clock_s, waiting_s)
        nan = float("nan")
        return RequestRecord(
            id=request.id,
            slo_class=request.slo_class,
            status=status,
            prompt_tokens=len(request.prompt),
            output_tokens=0,
            arrival_s=request.arrival_s,
            admitted_s=nan,
            first_token_s=nan,
            finish_s=clock_s,
            tpot_s=nan,
            tpot_objective_s=float(self.tpot_objectives_s[request.slo_class]),
            ttft_objective_s=float(self.ttft_objectives_s[request.slo_class]),
            valid_tokens=0,
            iterations=0,
            verified_nodes=0,
            completion_objective_s=float(self.completion_objectives_s[request.slo_class]),
            queue_age_objective_s=float(self.queue_age_objectives_s[request.slo_class]),
            max_tokens=request.max_tokens,
        )

    def _line(
        self,
        request: Request,
        one: SlotState,
        status: Status,
        clock_s: float,
        waiting_s: float = 0.0,
    ) -> RequestRecord:
        """The record of a request whose arrays, of one slot, are `one`.

        `waiting_s`: how long it has been without a slot since it gave one up.
        """
        first_s, emitted = float(one.first_token_s), int(one.emitted)
        return RequestRecord(
            id=request.id,
            slo_class=request.slo_class,
            status=status,
            prompt_tokens=len(request.prompt),
            output_tokens=emitted,
            arrival_s=request.arrival_s,
            admitted_s=float(one.admitted_s),
            first_token_s=first_s,
            finish_s=clock_s,
            tpot_s=(clock_s - first_s) / (emitted - 1) if emitted > 1 else float("nan"),
            tpot_objective_s=float(self.tpot_objectives_s[request.slo_class]),
            ttft_objective_s=float(self.ttft_objectives_s[request.slo_class]),
            valid_tokens=int(one.valid_tokens),
            iterations=int(one.iterations),
            verified_nodes=int(one.verified_nodes),
            completion_objective_s=float(self.completion_objectives_s[request.slo_class]),
            queue_age_objective_s=float(self.queue_age_objectives_s[request.slo_class]),
            max_tokens=request.max_tokens,
            preempted=self.preempted.get(request.id, 0),
            degraded_to=self.degraded_to.get(request.id, -1),
            requeued_s=max(waiting_s, self.requeued_s.get(request.id, 0.0)),
        )
