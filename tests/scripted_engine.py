"""An engine over a scripted target and a clock set by hand: every time and token is known.

Prefill takes 0.5 s and verification 0.25 s unless a test says otherwise; all are binary fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from engine.classes import ClassTable
from engine.loop import Engine, EngineSettings
from engine.orders import OrderName
from engine.overload import OverloadRule
from engine.paging import PagePool
from engine.protocol import Limits
from engine.request import Request
from tests.random_plans import Choice
from tests.scripted_drafter import HandClock, ScriptedBackend, ScriptedDrafter

UNLOADED_S = 0.125
CAPACITY = 64
ORDINARY = Choice(0, 1, 0, 0, 256, 16)


def scripted_engine(
    clock: HandClock,
    classes: ClassTable,
    requests: Sequence[Request],
    answers: Sequence[Sequence[int]],
    slots: int = 2,
    horizon_s: float = math.inf,
    prefill_tokens: int = 256,
    draft_s: float = 0.0,
    order: OrderName = "fcfs",
    overload: OverloadRule | None = None,
    pool: PagePool | None = None,
    failing: frozenset[int] = frozenset(),
    detokenize: Callable[[list[int]], str] | None = None,
) -> Engine:
    """Serves `requests`, whose answers by id are given; `engine.loop.perf_counter` must be `clock`.

    The drafter always proposes the true chain, so every draft is accepted.
    """
    limits = Limits(slots=slots, max_depth=4, max_width=2, max_nodes=8)
    texts = {r.id: [*r.prompt, *answers[r.id]] for r in requests}
    rng = np.random.default_rng(0)
    drafter = ScriptedDrafter(texts, 50, rng, hit_rate=1.0, likeliest=True)
    backend = ScriptedBackend(clock, drafter, dict(enumerate(answers)), draft_s=draft_s)
    backend.pool = pool or PagePool.sized(slots, CAPACITY)
    backend.failing = failing
    settings = EngineSettings(
        limits, CAPACITY, prefill_tokens, horizon_s, order, overload or OverloadRule()
    )
    return Engine(backend, requests, classes, settings, UNLOADED_S, detokenize)
