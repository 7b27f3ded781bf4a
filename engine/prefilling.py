"""Before a decision: who has come, who gets a slot, and how much of the prompts is read.

Prompts are read in chunks under a token budget between decoding steps (Sarathi-Serve's mixing of
prefill and decode), in order of admission. Who is next is the scheduler's to say, whether memory
suffices the page pool's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.backends.protocol import FAILED_TOKEN
from engine.request import Request, Status

if TYPE_CHECKING:
    from engine.loop import Engine


class Chunk(NamedTuple):
    """Prompt tokens of one request that were read together."""

    tokens: int
    context_tokens: int  # read before them
    ends_prompt: bool
    seconds: float


def take_arrivals(engine: Engine) -> None:
    """Queue who has come, turn away whom the overload rule rejects, withdraw who has left."""
    newcomers = engine.scheduler.arrive(engine.clock_s)
    if newcomers:
        for request in engine.overload.rejected(newcomers, engine.clock_s):
            engine.scheduler.withdraw(request.id)
            engine.ledger.dismiss(request, Status.REJECTED, engine.clock_s)
    for request_id in engine.scheduler.cancellations(engine.clock_s):
        engine.cancel(request_id)


def admit_waiting(engine: Engine) -> None:
    """Give free slots to waiting requests, as many as may run and fit in memory."""
    scheduler, overload = engine.scheduler, engine.overload
    scheduler.most_age_s = overload.most_age_s
    _fill_slots(engine)
    if scheduler.waiting and overload.most_age_s < float("inf"):
        waiting_since_s = scheduler.foremost(engine.clock_s).since_s
        slot = overload.must_yield_slot(waiting_since_s, engine.clock_s)
        if slot is not None:
            overload.count_slice(slot)
            engine.take_slot(slot, displaced=False)
            _fill_slots(engine)


def _fill_slots(engine: Engine) -> None:
    if not engine.scheduler.waiting:
        return
    slots, pool = engine.slots, engine.backend.pool
    active = slots.active[0]

    def fits(slot: int, request: Request) -> bool:
        """Take pages for the text and one row for the root, leaving every other root its row."""
        tokens = engine.ledger.tokens_to_prefill(request) + 1
        roots = pool.pages_for(slots.context[0] + 1) - pool.owned
        needed = int(np.maximum(roots, 0)[active].sum())
        return needed + pool.pages_for(tokens) <= pool.free_pages and pool.reserve(slot, tokens)

    free = np.flatnonzero(~active).tolist()
    running = int(active.sum())
    for slot, request in engine.scheduler.admit(
        free, running, engine.max_running, engine.clock_s, fits
    ):
        engine.ledger.admit(slot, request, engine.clock_s)
        engine.backend.admit(slot, request)


def prefill(engine: Engine) -> None:
    """Process prompts in the queue's own order until this iteration's token budget is spent."""
    slots, ledger = engine.slots, engine.ledger
    # While no request decodes there may be several rounds of the same budget.
    left = engine.prefill_tokens - engine.prefilled % engine.prefill_tokens
    reading = [slot for slot in ledger.running if not slots.decoding[0, slot]]
    reading.sort(key=lambda slot: engine.scheduler.key(ledger.running[slot], engine.clock_s))
    for slot in reading:
        begun = engine.read()
        start, goal = int(slots.prefilled[0, slot]), int(slots.to_prefill[0, slot])
        end = min(goal, start + left)
        token = engine.backend.prefill(slot, slots, end)
        slots.prefilled[0, slot] = slots.context[0, slot] = end
        seconds = engine.spend(begun)
        engine.prefill_s += seconds
        engine.chunks.append(Chunk(end - start, start, end == goal, seconds))
        engine.prefilled += end - start
        engine.counters["prefilled"] += end - start
        left -= end - start
        if token == FAILED_TOKEN:
            engine.end(slot, Status.FAILED)
        elif end == goal:
            _begin_decoding(engine, slot, token)
        if left <= 0:
            break


def _begin_decoding(engine: Engine, slot: int, token: int) -> None:
    """The text is through; `token` is news unless the slot's request had emitted before."""
    ledger, request = engine.ledger, engine.ledger.running[slot]
    if engine.slots.emitted[0, slot] > 0:
        engine.slots.decoding[0, slot] = True
        return
    ended = ledger.first_token(slot, token, engine.clock_s)
    if request.sampling.logprobs:
        request.logprobs.append(engine.backend.first_logprob(slot))
    ended |= engine.stops.tokens_until_stop(request, [token]) is not None
    if ended:
        engine.end(slot, Status.FINISHED)
