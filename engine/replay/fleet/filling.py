"""A replica's requests into its rows; what no fleet serves is refused."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import cast

import numpy as np

from engine.classes import ClassTable
from engine.errors import UserError
from engine.orders import OrderName
from engine.protocol import Floats, Ints
from engine.replay.fleet.state import REQUEST, FleetState
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.request import Request
from engine.sampling.params import GREEDY
from engine.state import MAX_STOPS

ALONE = "serve one replica at a time (`ReplayServer.engine`)"


def refusal(server: ReplayServer) -> str:
    """Why no fleet serves with the server's settings, in a sentence; nothing where one does."""
    pool, policy = server.engine([]).backend.pool, server.settings.overload.policy
    if pool.pages < pool.tables.size:
        return (
            f"the KV pool has {pool.pages} of the {pool.tables.size} pages that all slots may need,"
            f" and a fleet knows no memory pressure; leave kv_pool_tokens out, or {ALONE}"
        )
    if policy != "none":
        return (
            f"the overload policy is {policy!r}, and a fleet knows none; set it to 'none', or "
            f"{ALONE}"
        )
    return ""


def memory_refusal(server: ReplayServer) -> str:
    """Why no fleet serves disturbances of memory with the server's pages, in a sentence."""
    pool = server.engine([]).backend.pool
    if pool.tables.shape[1] == 1:
        return ""
    return (
        f"memory is withdrawn, and pages hold {pool.page_size} tokens; a fleet knows memory "
        f"pressure with one page a request alone; leave page_size out, or {ALONE}"
    )


def in_order(
    server: ReplayServer, requests: Sequence[Request], classes: ClassTable
) -> list[RecordedRequest]:
    """The requests as they come; raises UserError for what an engine or a fleet does not serve."""
    if not _is_sound(server, requests, classes):
        for request in requests:
            if request.cancel_at_s is not None:
                raise UserError(
                    f"request {request.id} is withdrawn at {request.cancel_at_s} s, and a fleet "
                    f"waits for every end; leave cancel_at_s out, or {ALONE}"
                )
        server.engine(requests, classes)  # which says what is wrong, if anything is
    recorded = cast("Sequence[RecordedRequest]", requests)
    return sorted(recorded, key=attrgetter("arrival_s", "id"))


def _is_sound(server: ReplayServer, requests: Sequence[Request], classes: ClassTable) -> bool:
    """Whether there is certainly nothing to refuse; faster than the engine's checks."""
    if not all(
        type(r) is RecordedRequest
        and r.sampling is GREEDY
        and r.cancel_at_s is None
        and not r.stop_strings
        for r in requests
    ):
        return False
    if len({request.id for request in requests}) < len(requests):
        return False
    rows = _rows(cast("Sequence[RecordedRequest]", requests))
    text, tokens, slo_class = rows["text"], rows["max_tokens"], rows["slo_class"]
    if ((text < 0) | (text >= server.recording.texts)).any():
        return False
    return bool(
        (rows["prompt_tokens"] == server.recording.prompt_tokens[text]).all()
        and (tokens >= 1).all()
        and (tokens <= server.book.outputs[text]).all()
        and (rows["prompt_tokens"] + tokens <= server.settings.context_tokens).all()
        and ((slo_class >= 0) & (slo_class < len(classes.classes))).all()
        and np.isfinite(rows["arrival_s"]).all()
        and max((len(request.stop_ids) for request in requests), default=0) <= MAX_STOPS
    )


def _rows(requests: Sequence[RecordedRequest]) -> np.ndarray:
    """What is asked, [n] of REQUEST; stop tokens and the key under an order are left out."""
    rows = np.zeros(len(requests), REQUEST)
    for name in ("arrival_s", "slo_class", "max_tokens", "text"):
        rows[name] = list(map(attrgetter(name), requests))
    rows["prompt_tokens"] = [len(request.prompt) for request in requests]
    return rows


def with_room(fleet: FleetState, room: int) -> FleetState:
    """The state with room for so many requests a replica: itself where there is enough.

    Else twice as much as before at least, so that this is rare.
    """
    replicas, before = fleet.requests.shape
    if room <= before:
        return fleet
    room = max(room, 2 * before)
    requests = np.zeros((replicas, room), REQUEST)
    queue = np.zeros((replicas, room), np.int64)
    requests[:, :before], queue[:, :before] = fleet.requests, fleet.queue
    return fleet._replace(requests=requests, queue=queue)


def fill(
    fleet: FleetState,
    r: int,
    requests: Sequence[RecordedRequest],
    order: OrderName,
    table: ClassTable,
) -> None:
    """Replica r's rows with `requests`, which stand in order of arrival; nobody has come yet."""
    rows, replica = _rows(requests), fleet.replicas[r]
    asked = [request.stop_ids for request in requests]
    # Few differ: most requests end at the target's own end-of-text token.
    stops = {ids: [*sorted(ids), *[-1] * (MAX_STOPS - len(ids))] for ids in set(asked)}
    rows["stop"] = [stops[ids] for ids in asked] or np.zeros((0, MAX_STOPS))
    rows["order_key"] = order_keys(
        order, rows["arrival_s"], rows["slo_class"], table, fleet.classes
    )
    fleet.requests[r, : len(requests)] = rows
    replica["requests"], replica["arrived"], replica["waiting"] = len(requests), 0, 0
    fleet.queued[r] = 0


def order_keys(
    order: OrderName, arrival_s: Floats, slo_class: Ints, table: ClassTable, classes: np.ndarray
) -> Floats:
    """[n] what stands before the arrival in a request's key under the order (`engine.orders`)."""
    if order == "fcfs":
        return np.zeros(len(arrival_s))
    if order == "priority":
        return -np.array([c.priority for c in table.classes], float)[slo_class]
    of = classes[slo_class]
    due_s = np.minimum(arrival_s + of["completion_s"], arrival_s + of["queue_age_s"])
    return np.minimum(due_s, arrival_s + of["ttft_s"])
