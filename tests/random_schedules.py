"""Random schedules on a tiny float64 decoder: whatever happens, no page leaks and no text changes.

Every drafter, admission order and overload policy has its turn with every other; arrivals,
sampling, cancellations, failures, plans, page size and pool are drawn. The clock is drawn too, so
that a seed gives the same schedule on any machine. What ended in the middle must have emitted a
beginning of the text that ordinary decoding gives with the same seed, what finished all of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple, get_args

import numpy as np
import torch

from engine import overload
from engine.backends.live import LiveBackend
from engine.backends.protocol import Choices
from engine.classes import ClassTable, SLOClass
from engine.drafters.eagle3 import Eagle3Drafter
from engine.drafters.model import ModelDrafter
from engine.drafters.prompt_lookup import PromptLookup
from engine.drafters.protocol import Drafter
from engine.loop import Engine, EngineSettings
from engine.orders import OrderName
from engine.overload import OverloadRule, PolicyName
from engine.protocol import Bools, Floats, Limits
from engine.request import Request, RequestRecord, Status
from engine.sampling.params import GREEDY, SamplingParams
from engine.state import SlotState, TreeState
from engine.tiny import tiny_decoder, tiny_head
from models.decoder import Decoder
from models.draft_head import DraftHead
from models.narrow_product import match_threads
from tests.ordinary_answers import Asked, ordinary_answers
from tests.random_plans import RandomMasks, RandomPlans
from tests.scripted_drafter import ScriptedDrafter

VOCAB = 10
LIMITS = Limits(slots=4, max_depth=3, max_width=3, max_nodes=10)
CAPACITY = 56
PROMPT_LENGTHS = (1, 2, 3, 7, 12, 19, 24)
PROMPTS = 14
ANSWER_TOKENS = 20
SAMPLED = (
    SamplingParams(temperature=1.0, seed=11),
    SamplingParams(temperature=0.7, top_p=0.8, seed=12),
    SamplingParams(temperature=1.2, top_p=0.9, repetition_penalty=1.2, seed=13),
)
DRAFTERS = ("scripted", "prompt-lookup", "eagle3", "model")
ORDERS: tuple[OrderName, ...] = get_args(OrderName)
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
FEATURE_LAYERS = (0, 1, 1)  # of a target that has two
UNLOADED_S = 0.01
CLASSES = ClassTable(
    (
        SLOClass("strict", 1.2, ttft_ratio=30.0, priority=2, queue_age_ratio=60.0),
        SLOClass("even", 2.0, completion_ratio=90.0, priority=1),
        SLOClass("loose", 6.0),
        SLOClass("free", float("inf")),
    )
)


class Variant(NamedTuple):
    """What is not drawn, so that all combinations come: 48 schedules have each once."""

    drafter: str
    order: OrderName
    policy: PolicyName

    @classmethod
    def of(cls, number: int) -> Variant:
        """The variant of a schedule."""
        number, drafter = divmod(number, len(DRAFTERS))
        number, order = divmod(number, len(ORDERS))
        return cls(DRAFTERS[drafter], ORDERS[order], POLICIES[number % len(POLICIES)])


def run_schedules(count: int, seed: int) -> dict[str, int]:
    """Run `count` schedules drawn from `seed`; what happened in them, by name.

    Raises AssertionError, with the number of the schedule, where a page leaks or a text differs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only cost time on matrices so small
    match_threads()
    torch.set_num_threads(1)  # Numba's threads, when they start, give torch all cores again
    level = overload.log.level
    overload.log.setLevel(logging.ERROR)  # schedules are overloaded by design
    totals: Counter[str] = Counter()
    try:
        for number in range(count):
            try:
                totals += run_schedule(Variant.of(number), np.random.default_rng([seed, number]))
            except Exception as error:
                error.add_note(f"in schedule {number} of seed {seed}")
                raise
    finally:
        torch.set_num_threads(threads)
        match_threads()
        overload.log.setLevel(level)
    return {"schedules": count, **dict(sorted(totals.items()))}


def run_schedule(variant: Variant, rng: np.random.Generator) -> Counter[str]:
    """One schedule, checked after every iteration and at its end."""
    requests = draw_requests(rng)
    page_size = int(rng.choice([1, 3, 8, CAPACITY]))
    # Hardly more than one request may need at most: memory is short in most schedules.
    tokens = page_size + int(
        CAPACITY * (1.0 if page_size < CAPACITY else 3.0) * rng.uniform(1, 1.5)
    )
    drafter = make_drafter(variant.drafter, requests, rng)
    backend = Failing(rng, page_size, tokens, drafter)
    engine = DrawnClock(variant, rng, backend, requests)
    controller = (RandomPlans if rng.random() < 0.5 else RandomMasks)(rng)
    alive = [r.id for r in requests]
    accepted = 0
    while (view := engine.next_decision()) is not None:
        check_pages(engine)
        if rng.random() < 0.03:
            engine.cancel(int(rng.choice(alive)))
        accepted += int(engine.run_iteration(view, controller).accepted.sum())
        check_pages(engine)
        if rng.random() < 0.03:
            engine.cancel(int(rng.choice(alive)))
    records = engine.close_records()
    assert backend.pool.free_pages == backend.pool.pages, "a page is still owned at the end"
    assert sorted(r.id for r in records) == alive, "a request has no record, or two"
    by_id = {request.id: request for request in requests}
    for record in records:
        check_text(by_id[record.id], record)
    happened = Counter(str(record.status) for record in records)
    happened[f"accepted of {variant.drafter}"] = accepted
    return happened + Counter(
        requests=len(records),
        sampled=sum(r.sampling is not GREEDY for r in requests),
        preempted=engine.counters["preempted"],
        shrunk=engine.counters["shrunk"],
        degraded=int(engine.overload.counts["degraded"].sum()),
        overloaded=engine.overload.entries,
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
                list(prompt(int(rng.integers(PROMPTS)))),
                1 + int(ANSWER_TOKENS * rng.random() ** 0.5),
                arrival_s,
                frozenset(stops),
                stop_strings=(texts,) if texts else (),
                cancel_at_s=arrival_s + float(rng.exponential(0.3)) if leaves else None,
                sampling=SAMPLED[int(rng.integers(len(SAMPLED)))] if rng.random() < 0.5 else GREEDY,
            )
        )
    return requests


def make_drafter(name: str, requests: Sequence[Request], rng: np.random.Generator) -> Drafter:
    """A drafter of that name, with an empty cache; the networks are those of all schedules."""
    if name == "scripted":
        texts = {r.id: r.prompt + answer(r) for r in requests}
        return ScriptedDrafter(texts, VOCAB, rng, hit_rate=0.7)
    if name == "prompt-lookup":
        return PromptLookup(VOCAB, LIMITS)
    if name == "model":
        return ModelDrafter(draft_model(), target(), LIMITS, CAPACITY)
    width = len(FEATURE_LAYERS) * target().config.hidden_size
    features = torch.zeros(LIMITS.slots, CAPACITY, width, dtype=target().dtype)
    return Eagle3Drafter(draft_head(), features, LIMITS, CAPACITY, FEATURE_LAYERS)


class Failing(LiveBackend):
    """A live backend whose verification now and then gives no numbers for one request."""

    def __init__(
        self, rng: np.random.Generator, page_size: int, tokens: int, drafter: Drafter
    ) -> None:
        super().__init__(target(), None, LIMITS, CAPACITY, page_size, tokens, drafter)
        self.rng = rng

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The true one, and a failure in one of three hundred."""
        super().verify(decoding, margin, slots, trees, choices)
        choices.failed[0] |= decoding[0] & (self.rng.random(LIMITS.slots) < 1 / 300)

    def memory_bytes(self) -> int:
        """Nothing: asking the system in every iteration is slow, and no schedule looks at it."""
        return 0


class DrawnClock(Engine):
    """An engine whose stopwatch moves by a drawn time at every reading."""

    def __init__(
        self,
        variant: Variant,
        rng: np.random.Generator,
        backend: LiveBackend,
        requests: Sequence[Request],
    ) -> None:
        self.rng, self.now_s = rng, 0.0
        rule = OverloadRule(
            variant.policy,
            warm_up_iterations=2,
            progress_age_ratio=20.0,
            progress_tpot_ratio=2.0,
        )
        settings = EngineSettings(
            LIMITS,
            CAPACITY,
            prefill_tokens=int(rng.integers(1, 40)),
            order=variant.order,
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
    full = answer(request)[: request.max_tokens]
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
def draft_model() -> Decoder:
    """The bottom of the target."""
    return tiny_decoder(0, VOCAB, layers=1)


@cache
def draft_head() -> DraftHead:
    """A head that knows the target's output rows."""
    return tiny_head(target())


@cache
def prompt(number: int) -> tuple[int, ...]:
    """One of the prompts."""
    rng = np.random.default_rng(number)
    length = PROMPT_LENGTHS[number % len(PROMPT_LENGTHS)]
    return tuple(rng.integers(0, VOCAB, length).tolist())


def answer(request: Request) -> list[int]:
    """What ordinary decoding answers to its prompt, with its parameters and seed."""
    return _answers()[tuple(request.prompt), request.sampling]


@cache
def _answers() -> Mapping[Asked, list[int]]:
    asked = [(prompt(i), params) for i in range(PROMPTS) for params in (GREEDY, *SAMPLED)]
    return ordinary_answers(target(), asked, ANSWER_TOKENS)


def as_text(tokens: list[int]) -> str:
    """A letter a token."""
    return "".join(chr(ord("a") + token) for token in tokens)
