"""A snapshot of one engine on replay: everything that its next iteration hangs on.

What is named here is what a snapshot leaves out; all else in these objects is carried. What a
controller remembers is the controller's own affair, and so are requests, which the engine that is
restored was given already, and what goes wrong in the episode, which comes with them.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UserError
from engine.ledger import Ledger
from engine.loop import Engine
from engine.orders import Waiting
from engine.overload import Overload
from engine.paging import PagePool
from engine.prefilling import Chunk
from engine.replay.backend import ReplayBackend
from engine.replay.clock import ModelledClock, ProfileMeter
from engine.request import RequestRecord, Status
from engine.scheduler import Scheduler
from engine.snapshot_origin import Snapshot, check_origin, digest_of, in_words
from engine.snapshot_values import Carrier, LeftOut
from engine.state import SlotState

LEFT_OUT: dict[type, LeftOut] = {
    Engine: LeftOut(
        constant=(
            *("requests", "_ids", "classes", "settings", "limits", "unloaded_tpot_s"),
            *("profile", "fallback", "stopwatch", "decision_s", "disturbances"),
        ),
        rebuilt=("stops",),
    ),
    Scheduler: LeftOut(
        constant=("order", "promises"),
        rebuilt=("_arrivals", "_queued", "_displaced", "_in_order", "_by_age"),
    ),
    Ledger: LeftOut(
        constant=(
            *("tpot_objectives_s", "ttft_objectives_s"),
            *("completion_objectives_s", "queue_age_objectives_s"),
        ),
        rebuilt=("slots",),
    ),
    Overload: LeftOut(
        constant=(
            *("rule", "ledger", "scheduler", "classes", "priority"),
            *("progress_age_s", "progress_tpot_s", "most_tps"),
        )
    ),
    PagePool: LeftOut(constant=("pages", "page_size", "tokens_per_slot")),
    ReplayBackend: LeftOut(
        constant=(
            *("book", "vocab_size", "limits", "capacity"),
            *("_resident_bytes", "_effects", "recording_digest"),
        )
    ),
    ModelledClock: LeftOut(constant=("profile", "power", "effects")),
    ProfileMeter: LeftOut(
        constant=("tokens", "draw_watts", "model", "_clock", "_constant_watts", "_effects")
    ),
}


def take(engine: Engine) -> Snapshot:
    """The engine as it stands: before a decision, or after an iteration.

    Raises UserError for an engine whose time is measured.
    """
    made_on = made_on_of(engine)
    return Snapshot("Engine", made_on, _carrier(engine).pack(engine, "engine"))


def put_back(engine: Engine, snapshot: Snapshot) -> None:
    """Make the engine what that one was; it must have been made for the same requests.

    The view of a decision that was due then is `engine.viewing.build_view`'s to make again.
    Raises UserError where recording, profile, sizes or requests are others.
    """
    check_origin(snapshot, "Engine", made_on_of(engine))
    _carrier(engine).unpack(snapshot.state, engine)


def made_on_of(engine: Engine) -> dict[str, str]:
    """What must be the same for a snapshot to be restored. Raises UserError on a live backend."""
    backend = engine.backend
    if not (
        isinstance(backend, ReplayBackend)
        and engine.stopwatch is backend.clock
        and isinstance(engine.power, ProfileMeter)
    ):
        raise UserError(
            "snapshots are taken of engines on replay; this one's time is measured as it passes, "
            "and networks and their caches cannot be taken back; serve with `--backend replay`"
        )
    pool = backend.pool
    asked = [
        (r.id, r.slo_class, len(r.prompt), r.max_tokens, r.arrival_s, getattr(r, "text", None))
        for r in engine.requests
    ]
    return {
        "recording": backend.recording_digest,
        "hardware profile": digest_of(engine.profile),
        "class table": digest_of(engine.classes),
        "KV pool": f"{pool.pages} pages of {pool.page_size} tokens",
        "list of requests": digest_of(asked),
        **in_words(engine.settings, engine.decision_s),
    }


def _carrier(engine: Engine) -> Carrier:
    return replace(CARRIER, requests={request.id: request for request in engine.requests})


def _rebuild(engine: Engine) -> None:
    """What follows from what was carried, and who is meant by it."""
    ledger, scheduler = engine.ledger, engine.scheduler
    ledger.slots = engine.slots
    scheduler.rebuild()
    for request in engine.requests:
        engine.stops.forget(request.id)
        parked = ledger.parked.get(request.id)
        if parked is not None:
            start = len(request.prompt)
            request.output = parked.text[start : start + int(parked.emitted)].tolist()
            engine.stops.tokens_until_stop(request, request.output)
    for slot, request in ledger.running.items():
        engine.stops.tokens_until_stop(request, ledger.output(slot))


CARRIER = Carrier(
    LEFT_OUT, records=(SlotState, Chunk, RequestRecord, Waiting, Status), rebuild={Engine: _rebuild}
)
