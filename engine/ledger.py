"""From a slot's life to the line that stays: admission, first token, end, and what was met."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.classes import ClassTable
from engine.kernels.walk import is_stop
from engine.request import Request, RequestRecord, Status
from engine.state import SlotState


class Ledger:
    """Fills and empties slots of replica 0 and keeps a record of every request."""

    def __init__(self, slots: SlotState, classes: ClassTable, unloaded_tpot_s: float) -> None:
        self.slots = slots
        self.tpot_objectives_s = classes.tpot_objectives_s(unloaded_tpot_s)
        self.ttft_objectives_s = classes.ttft_objectives_s(unloaded_tpot_s)
        self.running: dict[int, Request] = {}
        self.records: list[RequestRecord] = []

    def admit(self, slot: int, request: Request, clock_s: float) -> None:
        """Give the request a slot."""
        s = self.slots
        self.running[slot] = request
        s.active[0, slot], s.decoding[0, slot] = True, False
        s.request[0, slot], s.slo_class[0, slot] = request.id, request.slo_class
        s.prompt_tokens[0, slot], s.max_tokens[0, slot] = len(request.prompt), request.max_tokens
        s.arrival_s[0, slot], s.admitted_s[0, slot] = request.arrival_s, clock_s
        s.tpot_objective_s[0, slot] = self.tpot_objectives_s[request.slo_class]
        s.ttft_objective_s[0, slot] = self.ttft_objectives_s[request.slo_class]
        s.stop[0, slot] = -1
        s.stop[0, slot, : len(request.stop_ids)] = sorted(request.stop_ids)
        s.text[0, slot, : len(request.prompt)] = request.prompt
        s.first_token_s[0, slot] = np.nan
        for counter in (s.prefilled, s.context, s.emitted, s.valid_tokens, s.iterations):
            counter[0, slot] = 0
        for history in (s.proposed, s.accepted, s.since_proposed):
            history[0, slot] = 0
        s.verified_nodes[0, slot] = 0
        s.draft_confidence[0, slot] = 0.0

    def first_token(self, slot: int, token: int, clock_s: float) -> bool:
        """The prompt is through; True when this token already ends the output."""
        s = self.slots
        s.decoding[0, slot] = True
        s.first_token_s[0, slot] = clock_s
        s.emitted[0, slot] = s.valid_tokens[0, slot] = 1
        s.last_token[0, slot] = token
        s.text[0, slot, s.prompt_tokens[0, slot]] = token
        if s.max_tokens[0, slot] > 1 and not is_stop(token, s.stop[0, slot]):
            return False
        self.finish(slot, clock_s)
        return True

    def finish(self, slot: int, clock_s: float) -> None:
        """The request is done: free the slot and write its record."""
        self.records.append(self._record(slot, Status.FINISHED, clock_s))
        del self.running[slot]
        self.slots.active[0, slot] = self.slots.decoding[0, slot] = False

    def close(self, waiting: Iterable[Request], clock_s: float) -> list[RequestRecord]:
        """All records, with what runs or waits at `clock_s` as unfinished."""
        cut = [self._record(slot, Status.UNFINISHED, clock_s) for slot in self.running]
        return self.records + cut + [self._waiting_record(r, clock_s) for r in waiting]

    def _record(self, slot: int, status: Status, clock_s: float) -> RequestRecord:
        s, request = self.slots, self.running[slot]
        start, emitted = int(s.prompt_tokens[0, slot]), int(s.emitted[0, slot])
        request.output = s.text[0, slot, start : start + emitted].tolist()
        first_s = float(s.first_token_s[0, slot])
        return RequestRecord(
            id=request.id,
            slo_class=request.slo_class,
            status=status,
            prompt_tokens=start,
            output_tokens=emitted,
            arrival_s=request.arrival_s,
            admitted_s=float(s.admitted_s[0, slot]),
            first_token_s=first_s,
            finish_s=clock_s,
            tpot_s=(clock_s - first_s) / (emitted - 1) if emitted > 1 else float("nan"),
            tpot_objective_s=float(s.tpot_objective_s[0, slot]),
            ttft_objective_s=float(s.ttft_objective_s[0, slot]),
            valid_tokens=int(s.valid_tokens[0, slot]),
            iterations=int(s.iterations[0, slot]),
            verified_nodes=int(s.verified_nodes[0, slot]),
        )

    def _waiting_record(self, request: Request, clock_s: float) -> RequestRecord:
        nan = float("nan")
        return RequestRecord(
            id=request.id,
            slo_class=request.slo_class,
            status=Status.UNFINISHED,
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
        )
