"""What the stages of a step draw on a card: each is repeated by itself while the meter reads.

A step is over before the card is read once, so steps that take turns all seem to draw the same. A
backend's calls change nothing that is committed, so one of them can go on for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from engine.profile.hardware_profile import PowerUse
from engine.profile.measure import OneShape
from engine.profile.schedule import Shape
from engine.request import Request
from engine.telemetry import Meter

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.serving import LiveServer

SUSTAINED_S = 1.5
SETTLING = 0.4  # share of that time in which clocks and readings still follow
PROMPT_TOKENS = 128


def measure_power(
    server: LiveServer, seconds: float = SUSTAINED_S, clock: Callable[[], float] = perf_counter
) -> PowerUse | None:
    """Watts of verification by tokens, of drafting and of prefill.

    None where no card is metered, or it stops answering. Takes `seconds` for each of six calls.
    """
    meter = server.power
    if meter is None or not meter.is_measured:
        return None
    limits = server.settings.limits
    by_tokens: dict[float, float] = {}
    stages: dict[str, float] = {}
    widest = Shape(2, limits.max_width, limits.max_nodes)
    for requests, shape in (
        (1, Shape(0, 1, 0)),
        (limits.slots, Shape(0, 1, 0)),
        (limits.slots, Shape(2, 2, 4)),
        (limits.slots, widest),
    ):
        engine = _running(server, requests, shape)
        tokens = int(engine.trees.kept.sum()) + requests
        by_tokens[float(tokens)] = sustained_watts(_verify(engine), meter, seconds, clock)
    stages["draft"] = sustained_watts(_draft(engine), meter, seconds, clock)
    stages["prefill"] = sustained_watts(_prefill(engine), meter, seconds, clock)
    if not np.isfinite([*by_tokens.values(), *stages.values()]).all():
        return None
    ordered = sorted(by_tokens)
    return PowerUse(tuple(ordered), tuple(by_tokens[n] for n in ordered), True, stages)


def sustained_watts(
    call: Callable[[], None], meter: Meter, seconds: float, clock: Callable[[], float]
) -> float:
    """Median of the card's readings while `call` is repeated, the first ones left out."""
    begun, last = clock(), meter.card
    readings: list[float] = []
    while (spent_s := clock() - begun) < seconds or not readings:
        call()
        reading = meter.card
        if reading is not None and reading is not last:
            last = reading
            if spent_s >= SETTLING * seconds:
                readings.append(reading.watts)
        if spent_s > 4 * seconds:  # the card answers no more
            break
    return float(np.median(readings)) if readings else float("nan")


def _running(server: LiveServer, count: int, shape: Shape) -> Engine:
    """An engine in which so many requests have just been verified with trees of that shape."""
    generator = np.random.default_rng(0)
    high = server.decoder.config.vocab_size
    length = min(PROMPT_TOKENS, server.settings.context_tokens // 2)
    prompts = generator.integers(0, high, (count, length)).tolist()
    requests = [
        Request(i, 0, prompt, 4 * (shape.depth + 2), 0.0) for i, prompt in enumerate(prompts)
    ]
    settings = replace(server.settings, prefill_tokens=count * length)
    engine = server.engine(requests, settings=settings)
    controller = OneShape()
    controller.shape = shape
    controller.reset(engine.limits)
    view = engine.next_decision()
    assert view is not None  # nobody ends while reading a prompt
    engine.run_iteration(view, controller)
    reserved = engine.slots.context[0] + 1 + engine.trees.kept[0].sum(1)
    engine.backend.pool.reserve_all(np.where(engine.slots.decoding[0], reserved, 0))
    return engine


def _verify(engine: Engine) -> Callable[[], None]:
    """The verification of the trees that stand."""
    slots, margin = engine.slots, np.ones((1, engine.limits.slots))

    def call() -> None:
        engine.backend.verify(slots.decoding, margin, slots, engine.trees, engine.choices)

    return call


def _draft(engine: Engine) -> Callable[[], None]:
    """The draft step over the beams that stand."""

    def call() -> None:
        engine.backend.draft_next(2, engine.slots, engine.trees, engine.beam, engine.children)

    return call


def _prefill(engine: Engine) -> Callable[[], None]:
    """The prompt of the first slot, read anew."""
    slots = engine.slots._replace(prefilled=np.zeros_like(engine.slots.prefilled))
    end = int(slots.prompt_tokens[0, 0])

    def call() -> None:
        engine.backend.prefill(0, slots, end)

    return call
