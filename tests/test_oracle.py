"""The switching oracle on a clock by hand: drafting is cheap first, then dear, then cheap again.

A target step takes 0.25 s. A draft step is free, from 10 s on it takes 1 s, from 20 s on it is free
again. So chains are best in the outer regimes (4 tokens in 0.25 s) and ordinary decoding in the
middle one (1 token in 0.25 s against 4 in 3.25).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES, ClassTable, SLOClass
from engine.errors import UserError
from engine.loop import Engine
from engine.protocol import Controller, Limits
from engine.request import Request
from engine.workload import workload
from eval import oracle
from eval.oracle import ORACLE, Switching
from eval.runner import SeededRequests
from policies.registry import make
from tests.scripted_drafter import HandClock
from tests.scripted_engine import scripted_engine

CLASSES = ClassTable((SLOClass("even", 2.0),))  # 0.25 s a token
START_S = 1000.0
SHIFTS_S = (0.0, 10.0, 20.0)
END_S = 30.0


def dear(at_s: float) -> bool:
    """Whether a draft step costs something at that time."""
    return SHIFTS_S[1] <= at_s < SHIFTS_S[2]


@pytest.fixture
def make_engine(clock: HandClock) -> Callable[[list[Request]], Engine]:
    """Engines of two slots on which a draft step's cost follows the clock."""

    def build(requests: list[Request]) -> Engine:
        engine = scripted_engine(clock, CLASSES, requests, [[5] * 12] * len(requests))
        backend = engine.backend
        first, following = backend.draft_first, backend.draft_next

        def slowly(draft: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: object) -> None:
                clock.advance(1.0 if dear(engine.clock_s) else 0.0)
                draft(*arguments)

            return call

        backend.draft_first = slowly(first)  # type: ignore[method-assign]
        backend.draft_next = slowly(following)  # type: ignore[method-assign]
        return engine

    return build


def arrivals(every_s: float, until_s: float, start_s: float = 0.0) -> list[Request]:
    times = np.arange(start_s, until_s, every_s).tolist()
    return [Request(i, 0, [1], 9, at) for i, at in enumerate(times)]


SETTINGS: dict[str, Controller] = {"off": make("autoregressive"), "chain(3)": make("chain(3)")}


def test_the_sweep_finds_the_best_setting_of_each_regime(
    make_engine: Callable[[list[Request]], Engine],
) -> None:
    def best(start_s: float) -> str:
        alone = SeededRequests(0, lambda: arrivals(2.0, start_s + 8.0, start_s))
        return oracle.best_fixed([alone], SETTINGS, make_engine)

    assert [best(start_s) for start_s in SHIFTS_S] == ["chain(3)", "off", "chain(3)"]


def test_of_equals_the_first_is_taken(make_engine: Callable[[list[Request]], Engine]) -> None:
    twice: dict[str, Controller] = {"one": make("chain(3)"), "two": make("chain(3)")}
    alone = SeededRequests(0, lambda: arrivals(2.0, 6.0))
    assert oracle.best_fixed([alone], twice, make_engine) == "one"


def test_who_never_switches_pays_in_the_regime_where_it_is_wrong(
    make_engine: Callable[[list[Request]], Engine],
) -> None:
    chosen = [SETTINGS[n] for n in ("chain(3)", "off", "chain(3)")]
    switching = Switching(SHIFTS_S, chosen)
    found = oracle.adaptations(
        {"always chain(3)": make("chain(3)"), "the oracle again": Switching(SHIFTS_S, chosen)},
        switching,
        SeededRequests(0, lambda: arrivals(1.5, END_S)),
        make_engine,
        END_S,
        window_s=1.0,
    )
    assert list(found) == [ORACLE, "always chain(3)", "the oracle again"]
    assert all(len(shifts) == 2 for shifts in found.values())
    for shift in (*found[ORACLE], *found["the oracle again"]):  # negative control
        assert shift.settled and shift.regret_tokens == shift.debt_tokens == 0
        assert shift.churn_per_s <= 0.1  # one change in ten seconds
    into_dear, into_cheap = found["always chain(3)"]
    assert into_dear.regret_tokens > 0 and into_dear.debt_tokens > 0
    assert not into_dear.settled and into_dear.settling_s == 10.0
    assert into_dear.transition_violations > 0
    assert into_dear.churn_per_s == 0.0
    # What it lost was the setting: back in its own regime it works off its backlog and settles.
    assert into_cheap.settled
    assert into_cheap.regret_tokens < into_dear.regret_tokens


def test_the_oracle_switches_at_the_change_points(
    make_engine: Callable[[list[Request]], Engine],
) -> None:
    names = ("chain(3)", "off", "chain(3)")
    switching = Switching(SHIFTS_S, [SETTINGS[n] for n in names])
    engine = make_engine(arrivals(1.5, END_S))
    switching.reset(engine.limits)
    seen = []
    while (view := engine.next_decision()) is not None:
        engine.run_iteration(view, switching)
        seen.append((view.clock_s, switching.acting.name))
    assert {name for _, name in seen} == {"autoregressive", "chain(3)"}
    assert all((name == "autoregressive") == dear(at_s) for at_s, name in seen)


def test_a_sweep_over_each_regime_makes_the_oracle(
    make_engine: Callable[[list[Request]], Engine],
) -> None:
    """Regimes alone start at 0, so a stretch's own start tells the episode when to begin."""
    config = workload("shifting")
    found = [
        oracle.Stretch(start_s, start_s + 8.0, config) for start_s in SHIFTS_S
    ]  # what the sweep serves is drawn below
    starts = iter(SHIFTS_S)

    def episodes(alone: object) -> Sequence[SeededRequests]:
        start_s = next(starts)
        return [SeededRequests(0, lambda: arrivals(2.0, start_s + 8.0, start_s))]

    switching = oracle.switching_oracle(found, SETTINGS, episodes, make_engine)
    assert [c.name for c in switching.chosen] == ["chain(3)", "autoregressive", "chain(3)"]
    assert switching.starts_s == list(SHIFTS_S)


def test_stretches_are_the_episodes_own_regimes_and_each_alone() -> None:
    config = workload("shifting", duration_s=200.0)
    found = oracle.stretches(config, DEFAULT_CLASSES, 3, alone_s=20.0)
    again = oracle.stretches(config, DEFAULT_CLASSES, 3, alone_s=20.0)
    assert found == again
    assert found[0].start_s == 0.0 and found[-1].end_s == 200.0
    assert [s.end_s for s in found[:-1]] == [s.start_s for s in found[1:]]
    for stretch in found:
        (regime,) = stretch.alone.regimes
        assert stretch.alone.duration_s == regime.duration_s == 20.0
        assert stretch.alone.shifts is None
        assert 0.5 <= regime.load <= 1.2
        assert sum(regime.mix.values()) == pytest.approx(1.0)
    with pytest.raises(UserError, match="has no regimes to switch between"):
        oracle.stretches(workload("steady"), DEFAULT_CLASSES, 0, 20.0)


def test_the_switch_takes_fixed_settings_and_rising_starts_only() -> None:
    class Choosing(Controller):
        name = "choosing"

        def select(self, *_: object) -> None:
            return None

    with pytest.raises(ValueError, match=r"not fixed: \['choosing'\]"):
        Switching([0.0], [Choosing()])
    with pytest.raises(ValueError, match="rise from 0"):
        Switching([1.0], [make("chain")])
    with pytest.raises(ValueError, match="rise from 0"):
        Switching([0.0, 5.0, 5.0], [make("chain")] * 3)
    with pytest.raises(ValueError, match="2 starts, 1 settings"):
        Switching([0.0, 1.0], [make("chain")])
    Switching([0.0], [make("chain")]).reset(Limits())
