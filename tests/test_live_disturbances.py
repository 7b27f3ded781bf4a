"""Disturbances on the live engine: the drafter drifts, memory is withdrawn, a cap is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from engine.drafters.scheduled import Scheduled
from engine.drawing import Drawing
from engine.protocol import Limits
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from engine.workload import (
    Disturbance,
    Disturbances,
    DrawnRequests,
    PromptSet,
    Regime,
    WorkloadConfig,
    disturbances_of,
)
from envs.live import make_live
from eval import runner
from eval.compare import compare
from policies.registry import make
from tests.scripted_drafter import ScriptedDrafter

LIMITS = Limits(slots=4)
SMALL = PromptSet("small", {n: (f"{n} ab", f"{n} cde") for n in ("coding", "chat")})
SPOILT = WorkloadConfig(
    regimes=(Regime(2.0, 0.8, acceptance=0.0),), mix={"coding": 1.0, "chat": 1.0}, duration_s=0.3,
    max_tokens=12,
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """Four slots with a page each."""
    made = tiny_server(limits=LIMITS, capacity_tokens=128)
    yield made
    made.backend.pool.check()


def asked(count: int = 4, tokens: int = 30) -> list[Request]:
    return [Request(i, 0, [1 + i, 2, 3], tokens, 0.0) for i in range(count)]


def iterations(server: LiveServer, requests: list[Request]) -> int:
    engine = server.engine(requests)
    engine.serve(make("chain(3)"))
    return engine.counters["iterations"]


def knowing(server: LiveServer) -> None:
    """Give the server a drafter that is always right about `asked`."""
    texts = asked()
    server.engine(texts).serve(make("autoregressive"))
    known = {r.id: [*r.prompt, *r.output] for r in texts}
    vocab = server.decoder.config.vocab_size
    right = ScriptedDrafter(known, vocab, np.random.default_rng(0), 1.0, likeliest=True)
    server.guard.drafter = right


def test_drawn_requests_bring_their_drift_to_the_drafter(server: LiveServer) -> None:
    knowing(server)
    spoilt = Disturbances([Disturbance("acceptance", 0.0, math.inf, 0.0)])
    before = server.guard.drafter
    right = iterations(server, asked())
    assert right <= 10  # four tokens an iteration
    assert iterations(server, DrawnRequests(asked(), spoilt)) >= 29  # one
    # Made by hand again: the drafter is back as it was, also after an episode left midway.
    server.engine(DrawnRequests(asked(), spoilt)).next_decision()
    assert isinstance(server.guard.drafter, Scheduled)
    assert iterations(server, asked()) == right
    assert server.guard.drafter is before


def test_faults_follow_the_episodes_own_clock(server: LiveServer) -> None:
    late = Disturbances([Disturbance("draft_time", 1e6, math.inf, 3.0)])
    engine = server.engine(asked(), disturbances=late)
    drafter = server.guard.drafter
    assert isinstance(drafter, Scheduled) and drafter.active() is None
    engine.clock_s = 2e6
    assert drafter.active() is not None


def test_a_drawing_an_environment_and_a_comparison_hand_them_on(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = Drawing(server, SPOILT, SMALL)
    requests = drawing(np.random.default_rng(0))
    assert disturbances_of(requests).value("acceptance", 0.1) == 0.0
    assert disturbances_of(asked()).of == ()
    seen: list[float] = []
    engine_of = server.engine

    def watched(*args: object, **named: object) -> object:
        engine = engine_of(*args, **named)  # type: ignore[arg-type]
        drafter = server.guard.drafter
        fault = drafter.active() if isinstance(drafter, Scheduled) else None
        seen.append(0.0 if fault is None else fault.degraded)
        return engine

    monkeypatch.setattr(server, "engine", watched)
    make_live(server=server, requests=drawing).reset(seed=1)
    found = compare(server, drawing, {"a": make("chain(2)"), "s": make("vllm-spec(2)")}, 1, 0.5)
    assert isinstance(found, runner.Comparison)
    assert seen == [1.0] * 3


def test_memory_is_withdrawn_while_it_lasts_and_given_back(server: LiveServer) -> None:
    pool = server.backend.pool
    pressed = Disturbances([Disturbance("memory", 0.0, math.inf, 0.5)])
    engine = server.engine(asked(), disturbances=pressed)
    view = engine.next_decision()
    assert view is not None and pool.withdrawn == pool.pages // 2
    assert int(engine.slots.active.sum()) == 2  # a page a request: half of four
    engine.serve(make("chain(2)"))
    assert len(engine.records()) == 4  # all are served, one after the other
    plain = server.engine(asked())
    assert pool.withdrawn == 0
    plain.next_decision()
    assert int(plain.slots.active.sum()) == 4


def test_memory_withdrawn_midway_displaces_nobody_for_good(server: LiveServer) -> None:
    plain = asked()
    server.engine(plain).serve(make("chain(2)"))
    later = asked()
    engine = server.engine(later, disturbances=Disturbances())
    controller = make("chain(2)")
    controller.reset(engine.limits)
    for _ in range(3):
        view = engine.next_decision()
        assert view is not None
        engine.run_iteration(view, controller)
    engine.disturbances = Disturbances([Disturbance("memory", 0.0, math.inf, 0.75)])
    while (view := engine.next_decision()) is not None:
        engine.run_iteration(view, controller)
    assert engine.counters["preempted"] == 3  # all but one had to give way
    assert [r.output for r in later] == [r.output for r in plain]


def test_a_power_cap_is_shown_in_watts(server: LiveServer) -> None:
    capped = Disturbances([Disturbance("power_cap", 0.0, math.inf, 0.6)])
    engine = server.engine(asked(), disturbances=capped)
    view = engine.next_decision()
    assert view is not None
    assert view.power_cap_watts == pytest.approx(0.6 * engine.power.model.peak_watts)
    plain = server.engine(asked()).next_decision()
    assert plain is not None and plain.power_cap_watts == math.inf
