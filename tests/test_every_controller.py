"""Every controller of the registry, and wrappers, on random episodes with disturbances."""

from __future__ import annotations

import numpy as np
import pytest

from engine.protocol import Controller, Plan, View, uniform_plan
from policies import registry
from tests.controller_trials import (
    POOLS,
    VALUES,
    disturbances_of,
    faults,
    made,
    requests_of,
    serve,
)
from tests.random_plans import RandomPlans

EPISODES = 10
WRAPPED = [
    f"{wrapper}:{inner}"
    for wrapper in ("held(3)", "tiered", "shielded", "shadow('sglang-ema')", "shielded:held(2)")
    for inner in ("adaserve", "dsde")
]


@pytest.mark.parametrize("spec", [*registry.names(), *WRAPPED])
def test_it_keeps_to_the_rules_on_random_episodes(spec: str) -> None:
    assert not faults(lambda: made(spec), EPISODES, repeat_every=5)


def test_the_episodes_are_worth_something() -> None:
    """Memory is short in some, everything that can go wrong does, and the drafter is of use."""
    rngs = [np.random.default_rng(seed) for seed in range(EPISODES)]
    drawn = [(requests_of(rng), disturbances_of(rng), rng.integers(len(POOLS))) for rng in rngs]
    assert {d.kind for _, wrong, _ in drawn for d in wrong.of} == set(VALUES)
    assert {pool for _, _, pool in drawn} == {0, 1}
    trials = [serve(made("chain"), seed) for seed in range(EPISODES)]
    assert any(trial.preempted for trial in trials)
    assert any(serve(made("eagle3"), seed).shrunk for seed in range(EPISODES))
    assert any(max(step[0]) > 1 for trial in trials for step in trial.course)


class Wrong(Controller):
    """Everything that must not be, one at a time."""

    def __init__(self, what: str) -> None:
        self.what, self.calls = what, 0

    def plan(self, view: View) -> Plan:
        self.calls += 1
        plan = uniform_plan(view.limits, 2, 1, 2)
        if self.what == "outside":
            return uniform_plan(view.limits, view.limits.max_depth + 1, 1, 2)
        if self.what == "raises" and self.calls == 3:
            raise ZeroDivisionError("of mine")
        return plan


@pytest.mark.parametrize(
    ("what", "says"), [("outside", "outside the limits"), ("raises", "ZeroDivisionError: of mine")]
)
def test_faults_are_found(what: str, says: str) -> None:
    found = faults(lambda: Wrong(what), 3)
    assert any(says in fault for fault in found)


def test_chance_without_a_seed_is_found() -> None:
    rng = np.random.default_rng(0)
    found = faults(lambda: RandomPlans(rng), 4)
    assert any("another way" in fault for fault in found)
