"""Random schedules on a tiny float64 decoder: whatever happens, no page leaks and no text changes.

Arrivals, cancellations, failures, plans, admission order, overload rule, page size and pool are all
drawn; the clock is drawn too, so that a seed gives the same schedule on any machine. What ended in
the middle must have emitted a beginning of the text, what finished all of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import get_args

import numpy as np
import torch

from engine import overload
from engine.backends.live import LiveBackend
from engine.backends.protocol import Choices
from engine.classes import ClassTable, SLOClass
from engine.loop import Engine, EngineSettings
from engine.orders import OrderName
from engine.overload import OverloadRule, PolicyName
from engine.protocol import Bools, Floats, Limits
from engine.request import Request, RequestRecord, Status
from engine.state import SlotState, TreeState
from engine.tiny import tiny_decoder
from models.decoder import Decoder
from models.kv_cache import TokenBatch
from tests.random_plans import RandomMasks, RandomPlans
from tests.scripted_drafter import ScriptedDrafter

VOCAB = 10
LIMITS = Limits(slots=4, max_depth=3, max_width=3, max_nodes=10)
CAPACITY = 64
PROMPT_LENGTHS = (1, 2, 3, 7, 12, 19, 24)
CASES = 14
ANSWER_TOKENS = 28
UNLOADED_S = 0.01
CLASSES = ClassTable(
    (
        SLOClass("strict", 1.2, ttft_ratio=30.0, priority=2, queue_age_ratio=60.0),
        SLOClass("even", 2.0, completion_ratio=90.0, priority=1),
        SLOClass("loose", 6.0),
        SLOClass("free", float("inf")),
    )
)


def run_schedules(count: int, seed: int) -> dict[str, int]:
    """Run `count` schedules drawn from `seed`; what happened in them, by name.

    Raises AssertionError, with the number of the schedule, where a page leaks or a text differs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only cost time on matrices so small
    level = overload.log.level
    overload.log.setLevel(logging.ERROR)  # schedules are overloaded by design
    totals: Counter[str] = Counter()
    try:
        for number in range(count):
            try:
                totals += run_schedule(np.random.default_rng([seed, number]))
            except Exception as error:
                error.add_note(f"in schedule {number} of seed {seed}")
                raise
    finally:
        torch.set_num_threads(threads)
        overload.log.setLevel(level)
    return {"schedules": count, **dict(sorted(totals.items()))}


def run_schedule(rng: np.random.Generator) -> Counter[str]:
    """One schedule, checked after every iteration and at its end."""
    requests = draw_requests(rng)
    page_size = int(rng.choice([1, 3, 8, CAPACITY]))
    # Hardly more than one request may need at most: memory is short in most schedules.
    tokens = page_size + int(
        CAPACITY * (1.0 if page_size < CAPACITY else 3.0) * rng.uniform(1, 1.5)
    )
    texts = {r.id: r.prompt + answer(tuple(r.prompt)) for r in requests}
    drafter = ScriptedDrafter(texts, VOCAB, rng, hit_rate=0.7)
    backend = Failing(rng, page_size, tokens, drafter)
    engine = DrawnClock(rng, backend, requests)
    controller = (RandomPlans if rng.random() < 0.5 else RandomMasks)(rng)
    alive = [r.id for r in requests]
    while (view := engine.next_decision()) is not None:
        check_pages(engine)
        if rng.random() < 0.03:
            engine.cancel(int(rng.choice(alive)))
        engine.run_iteration(view, controller)
        check_pages(engine)
        if rng.random() < 0.03:
            engine.cancel(int(rng.choice(alive)))
    records = engine.close_records()
    assert backend.pool.free_pages == backend.pool.pages, "a page is still owned at the end"
    assert sorted(r.id for r in records) == alive, "a request has no record, or two"
    by_id = {request.id: request for request in requests}
    for record in records:
        check_text(by_id[record.id], record)
    return Counter(
        requests=len(records),
        preempted=engine.counters["preempted"],
        shrunk=engine.counters["shrunk"],
        degraded=int(engine.overload.counts["degraded"].sum()),
        overloaded=engine.overload.entries,
        **Counter(str(r.status) for r in records),
    )


def draw_requests(rng: np.random.Generator) -> list[Request]:
    """Requests over known prompts; some have stop tokens, stop strings, or leave."""
    requests = []
    for i in range(int(rng.integers(4, 9))):
        stops = rng.integers(0, VOCAB, int(rng.integers(1, 4))).tolist() if i % 4 == 1 else []
        texts = as_text(rng.integers(0, VOCAB, 2).tolist()) if i % 4 == 3 else ""
        arrival_s = float(rng.uniform(0.0, 0.1))
        leaves = rng.random() < 0.15
        requests.append(
            Request(
                i,
                int(rng.integers(len(CLASSES.classes))),
                list(prompt(int(rng.integers(CASES)))),
                1 + int(ANSWER_TOKENS * rng.random() ** 0.5),
                arrival_s,
                frozenset(stops),
                stop_strings=(texts,) if texts else (),
                cancel_at_s=arrival_s + float(rng.exponential(0.3)) if leaves else None,
            )
        )
    return requests


class Failing(LiveBackend):
    """A live backend whose verification now and then gives no numbers for one request."""

    def __init__(
        self, rng: np.random.Generator, page_size: int, tokens: int, drafter: ScriptedDrafter
    ) -> None:
        super().__init__(target(), None, LIMITS, CAPACITY, page_size, tokens, drafter)
        self.rng = rng

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The true one, and a failure in one of three hundred."""
        super().verify(decoding, margin, slots, trees, choices)
        choices.failed[0] |= decoding[0] & (self.rng.random(LIMITS.slots) < 1 / 300)


class DrawnClock(Engine):
    """An engine under a drawn rule, whose stopwatch moves by a drawn time at every reading."""

    def __init__(
        self, rng: np.random.Generator, backend: LiveBackend, requests: Sequence[Request]
    ) -> None:
        self.rng, self.now_s = rng, 0.0
        policies: tuple[PolicyName, ...] = get_args(PolicyName)
        rule = OverloadRule(
            policies[int(rng.integers(len(policies)))],
            warm_up_iterations=2,
            progress_age_ratio=20.0,
            progress_tpot_ratio=2.0,
        )
        orders: tuple[OrderName, ...] = get_args(OrderName)
        settings = EngineSettings(
            LIMITS,
            CAPACITY,
            prefill_tokens=int(rng.integers(1, 40)),
            order=orders[int(rng.integers(len(orders)))],
            overload=rule,
        )
        super().__init__(backend, requests, CLASSES, settings, UNLOADED_S, as_text)

    def read(self) -> float:
        """Some time later."""
        self.now_s += float(self.rng.exponential(0.002))
        return self.now_s


def check_pages(engine: Engine) -> None:
    """Every page is free or owned once, and only by slots that hold a request."""
    pool = engine.backend.pool
    pool.check()
    idle = ~engine.slots.active[0]
    assert not pool.owned[idle].any(), f"slots without a request own {pool.owned[idle]} pages"


def check_text(request: Request, record: RequestRecord) -> None:
    """All of the answer when finished, else a beginning of it."""
    wanted = expected(request)
    if record.status is Status.FINISHED:
        assert request.output == wanted, f"request {request.id} differs from ordinary decoding"
    else:
        assert record.status is not Status.UNFINISHED, f"request {request.id} was forgotten"
        assert request.output == wanted[: len(request.output)], f"request {request.id} differs"
    assert record.output_tokens == len(request.output)


def expected(request: Request) -> list[int]:
    """What ordinary decoding answers, up to the limit or the first stop."""
    full = answer(tuple(request.prompt))[: request.max_tokens]
    for end in range(1, len(full) + 1):
        text = as_text(full[:end])
        if full[end - 1] in request.stop_ids or any(s in text for s in request.stop_strings):
            return full[:end]
    return full


# -- the target and what it says -------------------------------------------------------------------


@cache
def target() -> Decoder:
    """The decoder that all schedules share."""
    return tiny_decoder(0, VOCAB, layers=2)


@cache
def prompt(number: int) -> tuple[int, ...]:
    """One of the prompts."""
    rng = np.random.default_rng(number)
    length = PROMPT_LENGTHS[number % len(PROMPT_LENGTHS)]
    return tuple(rng.integers(0, VOCAB, length).tolist())


@cache
def answer(prompt: tuple[int, ...]) -> list[int]:
    """What ordinary decoding answers: no engine, no cache, all of the text anew for every token."""
    text = list(prompt)
    with torch.inference_mode():
        for token in _tokens(text):
            text.append(token)
            if len(text) == len(prompt) + ANSWER_TOKENS:
                break
    return text[len(prompt) :]


def _tokens(text: list[int]) -> Iterator[int]:
    decoder = target()
    while True:
        n = len(text)
        rows = torch.arange(n)
        mask = torch.ones(1, n, n, dtype=torch.bool).tril()
        batch = TokenBatch(torch.tensor(text), rows, torch.zeros_like(rows), rows, rows, mask, 0, 1)
        hidden, _ = decoder.forward(batch, decoder.new_cache(1, n))
        yield int(decoder.logits(hidden[-1:]).argmax())


def as_text(tokens: list[int]) -> str:
    """A letter a token."""
    return "".join(chr(ord("a") + token) for token in tokens)
