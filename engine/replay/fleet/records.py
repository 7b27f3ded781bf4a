"""Lines of the ledger as `RequestRecord`s, from the arrays of one replica."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.replay.fleet.ending import write_line
from engine.replay.fleet.state import FleetState
from engine.request import Request, RequestRecord, Status


def records_of(fleet: FleetState, r: int, requests: Sequence[Request]) -> list[RequestRecord]:
    """Of replica r: who has ended, in order of their end, then who runs or waits, as unfinished.

    That is `Engine.close_records`, in its order. `requests` are the replica's, in order of arrival;
    who has not come yet has no record.
    """
    rows, slots, clock_s = fleet.requests[r], fleet.slots[r], float(fleet.replicas[r]["clock_s"])
    known = came(fleet, r)
    ended = np.flatnonzero(rows["ended"][:known])
    ended = ended[np.argsort(rows["ended"][ended])]
    running = slots[slots["active"]]
    for slot in running:
        write_line(slot, rows[slot["request"]])
    held = running["request"][np.argsort(running["entered_s"], kind="stable")]
    replica = fleet.replicas[r]
    queue = fleet.queue[r, : replica["waiting"]].tolist()
    parked = {int(slot["request"]): slot for slot in fleet.parked[r] if slot["active"]}
    for q, slot in parked.items():
        write_line(slot, rows[q])
    waiting = [*queue, *range(int(replica["arrived"]), known)]
    done = [_record(fleet, rows[q], requests[q], Status.FINISHED) for q in ended.tolist()]
    cut = [_record(fleet, rows[q], requests[q], Status.UNFINISHED, clock_s) for q in held.tolist()]
    left = [
        _record(fleet, rows[q], requests[q], Status.UNFINISHED, clock_s, q in parked)
        if q in parked
        else _never_served(fleet, requests[q], clock_s)
        for q in waiting
    ]
    return done + cut + left


def came(fleet: FleetState, r: int) -> int:
    """How many of replica r's requests have come by now, or by the horizon."""
    replica = fleet.replicas[r]
    arrival_s = fleet.requests[r, : replica["requests"]]["arrival_s"]
    return int(
        np.searchsorted(
            arrival_s, min(float(replica["clock_s"]), fleet.rules.horizon_s), side="right"
        )
    )


def _record(
    fleet: FleetState,
    row: np.void,
    request: Request,
    status: Status,
    cut_s: float | None = None,
    is_parked: bool = False,
) -> RequestRecord:
    """Of a request that has a slot or had one; its row holds what came of it until it was cut."""
    first_s, emitted = float(row["first_token_s"]), int(row["emitted"])
    finish_s = float(row["finish_s"]) if cut_s is None else cut_s
    return _never_served(fleet, request, finish_s)._replace(
        status=status,
        output_tokens=emitted,
        admitted_s=float(row["admitted_s"]),
        first_token_s=first_s,
        tpot_s=(finish_s - first_s) / (emitted - 1) if emitted > 1 else float("nan"),
        valid_tokens=int(row["valid_tokens"]),
        iterations=int(row["iterations"]),
        verified_nodes=int(row["verified_nodes"]),
        preempted=int(row["preempted"]),
        requeued_s=max(
            finish_s - float(row["parked_s"]) if is_parked else 0.0, float(row["requeued_s"])
        ),
    )


def _never_served(fleet: FleetState, request: Request, clock_s: float) -> RequestRecord:
    nan, of = float("nan"), fleet.classes[request.slo_class]
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
        tpot_objective_s=float(of["tpot_s"]),
        ttft_objective_s=float(of["ttft_s"]),
        valid_tokens=0,
        iterations=0,
        verified_nodes=0,
        completion_objective_s=float(of["completion_s"]),
        queue_age_objective_s=float(of["queue_age_s"]),
        max_tokens=request.max_tokens,
    )
