"""A profile on a card: parts charged their own work, trees around stairs, power by stage.

There is no card: work that is asked for and not waited for is made of a clock by hand, and what a
stage draws of a backend that says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine import serving
from engine.backends.protocol import Backend, Children, Choices
from engine.backends.wrapper import BackendWrapper
from engine.kernels.beam import BeamState
from engine.loop import EngineSettings
from engine.nvml import UNKNOWN, CardReading
from engine.paging import PagePool
from engine.profile import HardwareProfile, live
from engine.profile.power import measure_power
from engine.profile.schedule import CARD_MOST_TOKENS, schedule
from engine.protocol import Bools, Floats, Limits, Outcome
from engine.request import Request
from engine.serving import LiveServer
from engine.state import SlotState, TreeState
from engine.telemetry import Energy, PowerModel
from policies.registry import make
from tests import profile_steps
from tests.known_costs import small_server
from tests.scripted_drafter import HandClock, ScriptedBackend, ScriptedDrafter

LIMITS = Limits(slots=3, max_depth=4, max_width=4, max_nodes=16)


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """Very small networks, on one thread."""
    with profile_steps.one_thread():
        yield small_server(LIMITS)


# -- the stopwatch ---------------------------------------------------------------------------------


class Device:
    """Work is asked for, and takes its time when somebody waits for it."""

    def __init__(self, clock: HandClock) -> None:
        self.clock, self.outstanding_s = clock, 0.0

    def advance(self, seconds: float) -> None:
        """Ask for so much work, as a clock's `advance` is called."""
        self.outstanding_s += seconds

    def wait(self, device: torch.device) -> None:
        """Wait for all of it."""
        self.clock.advance(self.outstanding_s)
        self.outstanding_s = 0.0


def outcomes(server: LiveServer, device: Device, waiting: bool) -> list[Outcome]:
    """An episode on a backend that never waits: prefill 0.5 s, a draft 0.125, verifying 0.25."""
    limits = Limits(slots=1, max_depth=4, max_width=2, max_nodes=8)
    request, answer = Request(0, 0, [1, 2], 9, 0.0), list(range(20))
    drafter = ScriptedDrafter({0: [1, 2, *answer]}, 50, np.random.default_rng(0), 1.0, True)
    backend = ScriptedBackend(device, drafter, {0: answer}, draft_s=0.125)  # type: ignore[arg-type]
    backend.pool = PagePool.sized(1, 64)
    engine = server.engine(
        [request], settings=EngineSettings(limits, 64), backend=backend, waiting=waiting
    )
    controller, found = make("chain(2)"), []
    controller.reset(limits)
    while (view := engine.next_decision()) is not None:
        found.append(engine.run_iteration(view, controller))
    return found


def test_every_part_is_charged_its_own_work(
    server: LiveServer, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(clock)
    monkeypatch.setattr(server, "device", torch.device("meta"))
    monkeypatch.setattr(serving, "wait_for", device.wait)
    monkeypatch.setattr(serving, "perf_counter", clock)
    timed = outcomes(server, device, waiting=True)
    assert [o.prefill_s for o in timed] == [0.5, *[0.0] * (len(timed) - 1)]
    assert all((o.draft_s, o.verify_s) == (0.25, 0.25) for o in timed[:-1])
    # Negative control: nobody waits, nothing is seen.
    plain = outcomes(server, device, waiting=False)
    assert all(o.verify_s == 0.0 for o in plain)


def test_late_captures_are_left_out_of_what_is_waited_for(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock(9.0)
    waits: list[torch.device] = []
    monkeypatch.setattr(server, "device", torch.device("meta"))
    monkeypatch.setattr(server, "graphs", SimpleNamespace(late_s=4.0))
    monkeypatch.setattr(serving, "wait_for", waits.append)
    monkeypatch.setattr(serving, "perf_counter", clock)
    request = Request(0, 0, [1, 2], 4, 0.0)
    engine = server.engine([request], waiting=True)
    waits.clear()
    assert engine.read() == 5.0 and waits == [server.device]
    engine = server.engine([request])
    waits.clear()
    assert engine.read() == 5.0 and not waits


def test_on_a_processor_nobody_waits(server: LiveServer) -> None:
    request = Request(0, 0, [1, 2], 4, 0.0)
    assert server.engine([request], waiting=True).stopwatch is None


# -- the schedule ----------------------------------------------------------------------------------


def test_trees_end_at_stairs_and_begin_behind_them() -> None:
    limits, stairs = Limits(slots=64), (1, 2, 4, 8, 16, 32, 64, 128)
    episodes = schedule(limits, 959, True, np.random.default_rng(0), CARD_MOST_TOKENS, stairs)
    alone = {shape.nodes + 1 for e in episodes if e.requests == 1 for shape in e.shapes}
    for stair in (2, 4, 8, 16, 32, 64):
        assert {stair, stair + 1} <= alone, stair
    tokens = {e.requests * (s.nodes + 1) for e in episodes for s in e.shapes}
    assert 2000 < max(tokens) <= CARD_MOST_TOKENS
    for shape in (s for e in episodes for s in e.shapes if s.depth):
        assert shape.nodes <= shape.width + (shape.depth - 1) * shape.width**2
    plain = schedule(limits, 959, True, np.random.default_rng(0))
    assert max(e.requests * (s.nodes + 1) for e in plain for s in e.shapes) < 200


def test_a_server_with_tiers_is_measured_around_them(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def noted(*arguments: Any) -> Any:
        asked.append(arguments[4:])
        raise InterruptedError

    monkeypatch.setattr(live, "schedule", noted)
    server.decoder.token_tiers = (1, 8, 16)  # type: ignore[attr-defined]
    with pytest.raises(InterruptedError):
        live.profile_server(server, True, 3, 0.0, 0)
    assert asked == [(None, (1, 8, 16))]


# -- power -----------------------------------------------------------------------------------------


class Card:
    """A meter that reads what the backend says that it draws; it answers once a call."""

    is_measured = True
    model = PowerModel()

    def __init__(self) -> None:
        self.watts = 50.0

    @property
    def card(self) -> CardReading:
        """A new reading every time."""
        return UNKNOWN._replace(watts=self.watts)

    def begin(self) -> None:
        """Nothing is counted."""

    pause = resume = begin

    def end(self, busy_s: float, tokens_per_pass: float) -> Energy:
        """Of an iteration."""
        return Energy(1.0, self.watts, True)


class Drawing(BackendWrapper):
    """Every call takes a tenth of a second and has power of its own."""

    def __init__(self, inner: Backend, card: Card, clock: HandClock) -> None:
        super().__init__(inner)
        self.card, self.clock = card, clock

    def _draw(self, watts: float) -> None:
        self.card.watts = watts
        self.clock.advance(0.1)

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        self._draw(400.0)
        return super().prefill(slot, slots, end)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        self._draw(300.0)
        super().draft_next(step, slots, trees, beam, children)

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        self._draw(100.0 + int(decoding.sum() + trees.kept.sum()))
        super().verify(decoding, margin, slots, trees, choices)


def metered(server: LiveServer, clock: HandClock) -> Card:
    """The server, drawing on a card from now on."""
    card = Card()
    server.power = card  # type: ignore[assignment]
    server.backend = Drawing(server.backend, card, clock)  # type: ignore[assignment]
    return card


def test_power_is_measured_stage_by_stage(server: LiveServer, tmp_path: Path) -> None:
    clock = HandClock()
    metered(server, clock)
    power = measure_power(server, 1.0, clock)
    assert power is not None and power.is_measured
    assert power.tokens == (1.0, 3.0, 15.0, 51.0)  # alone; three roots, with 4 and with 16 nodes
    assert power.watts == tuple(100.0 + n for n in power.tokens)
    assert power.stages == {"draft": 300.0, "prefill": 400.0}
    made = profile_steps.profile_of(profile_steps.timed(profile_steps.episodes(quick=True)))
    profile = dataclasses.replace(made, power=power)
    assert HardwareProfile.load(profile.save(tmp_path / "p.json")) == profile
    assert profile.watts(2) == pytest.approx(102.0)


def test_the_first_readings_are_left_out(server: LiveServer) -> None:
    clock = HandClock()
    card = metered(server, clock)
    begun = clock.now_s

    class Warming(Card):
        @property
        def card(self) -> CardReading:
            return UNKNOWN._replace(watts=60.0 if clock.now_s - begun < 0.3 else card.watts)

    server.power = Warming()  # type: ignore[assignment]
    power = measure_power(server, 1.0, clock)
    assert power is not None and power.watts[0] == 101.0


def test_without_a_card_or_its_answers_there_is_no_power(server: LiveServer) -> None:
    clock = HandClock()
    assert measure_power(server, 1.0, clock) is None
    metered(server, clock)

    class Lost(Card):
        @property
        def card(self) -> CardReading:
            return UNKNOWN

    server.power = Lost()  # type: ignore[assignment]
    assert measure_power(server, 1.0, clock) is None
