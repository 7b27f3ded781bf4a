"""A scripted engine on a hand-driven clock, for tests of overload.

An iteration takes 0.25 s and an ordinary one brings every request a token: 4 tokens/s each.
"""

from __future__ import annotations

import math

from engine.classes import ClassTable, SLOClass
from engine.loop import Engine
from engine.overload import OverloadRule, PolicyName
from engine.request import Request
from tests.random_plans import Choice, ListedPlans
from tests.scripted_drafter import HandClock
from tests.scripted_engine import ORDINARY, scripted_engine

CLASSES = ClassTable(
    (
        SLOClass("hasty", 1.0, priority=1),  # 8 tokens/s
        SLOClass("brisk", 1.6),  # 5 tokens/s
        SLOClass("calm", 4.0),  # 2 tokens/s
        SLOClass("free", math.inf),
    )
)
HASTY, BRISK, CALM, FREE = range(4)
TOKENS = 40
SLOW_READING = Choice(0, 1, 0, 0, 1, 16)  # one prompt token an iteration


def rule(policy: PolicyName, **fields: float) -> OverloadRule:
    """One that judges after two iterations and forgets at once."""
    return OverloadRule(policy, warm_up_iterations=2, decay=0.0, **fields)  # type: ignore[arg-type]


def engine_of(
    clock: HandClock,
    of_class: list[int],
    arrivals: list[float],
    overload: OverloadRule,
    slots: int = 2,
    tokens: int = TOKENS,
    classes: ClassTable = CLASSES,
) -> Engine:
    """An engine over requests of these classes that come then; prompts take no time."""
    requests = [
        Request(i, c, [1], tokens, at)
        for i, (c, at) in enumerate(zip(of_class, arrivals, strict=True))
    ]
    answers = [[5] * tokens] * len(requests)
    engine = scripted_engine(clock, classes, requests, answers, slots=slots, overload=overload)
    engine.backend.prefill_s = 0.0  # type: ignore[attr-defined]
    return engine


def advance(engine: Engine, iterations: int, plan: Choice = ORDINARY) -> None:
    """Some iterations, and up to the decision after them."""
    controller = ListedPlans([plan])
    for _ in range(iterations):
        view = engine.next_decision()
        assert view is not None
        engine.run_iteration(view, controller)
    engine.next_decision()


def counted(engine: Engine, name: str) -> list[int]:
    """A count by class."""
    return engine.overload.counts[name].tolist()
