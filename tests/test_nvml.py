"""A graphics card's meter on a recorded NVML: energy adds up, and what is missing is noticed."""

from __future__ import annotations

import inspect
import logging
import math
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from engine.classes import ClassTable, SLOClass
from engine.errors import UserError
from engine.gpu_meter import GpuMeter, open_gpu_meter
from engine.nvml import UNKNOWN, CardLostError, CardReading, open_card
from engine.observability.metrics import ServingMetrics
from engine.request import Request
from engine.sampled_energy import REPAY_S
from engine.telemetry import Meter, PowerMeter, PowerModel
from tests.nvml_double import (
    DRIVER_NOT_LOADED,
    NOT_SUPPORTED,
    PERIOD_S,
    TIMEOUT,
    Fault,
    RecordedNvml,
    Row,
    lost,
    recording,
)
from tests.random_plans import ListedPlans
from tests.scripted_drafter import HandClock
from tests.scripted_engine import ORDINARY, scripted_engine

TICK_S = 1 / 64
MISSING = Fault(NOT_SUPPORTED)


@dataclass
class Bench:
    """A meter on a recorded card; `pass_time` reads the card whenever a period is over."""

    rows: Sequence[Row]
    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        self.nvml = RecordedNvml(self.rows, self.clock)
        card = open_card(library=self.nvml)
        assert card is not None
        self.meter = GpuMeter(card, clock=self.clock)
        self.meter.sample()
        self.told: list[float] = []

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.clock.advance(TICK_S)
            if self.clock.now_s % PERIOD_S == 0:
                self.meter.sample()

    def iterations(self, count: int, work_s: float = 2 * TICK_S, excluded_s: float = 0.0) -> float:
        """So many, each half before and half after the excluded time; joules told so far."""
        for _ in range(count):
            self.meter.begin()
            self.pass_time(work_s / 2)
            self.meter.pause()
            self.pass_time(excluded_s)
            self.meter.resume()
            self.pass_time(work_s / 2)
            energy = self.meter.end(work_s, 4.0)
            assert energy.is_measured
            self.told.append(energy.joules)
        return sum(self.told)


# -- what the card tells ---------------------------------------------------------------------------


def test_readings_are_in_base_units() -> None:
    assert Bench([Row(0.0)]).meter.card == CardReading(
        watts=112.0,
        memory_used_bytes=3 << 30,
        memory_total_bytes=141 << 30,
        sm_clock_hertz=1.98e9,
        memory_clock_hertz=3.201e9,
        temperature_celsius=34.0,
        joules=5e6,
    )


@pytest.mark.parametrize(
    ("recorded", "missing"),
    [
        ("used_bytes", {"memory_used_bytes", "memory_total_bytes"}),
        ("sm_mhz", {"sm_clock_hertz"}),
        ("memory_mhz", {"memory_clock_hertz"}),
        ("celsius", {"temperature_celsius"}),
        ("energy_mj", {"joules"}),
    ],
)
def test_an_unsupported_field_is_missing_alone(recorded: str, missing: set[str]) -> None:
    bench = Bench(recording([(8, 300)], **{recorded: MISSING}))
    reading = bench.meter.card._asdict()
    assert {name for name, value in reading.items() if math.isnan(value)} == missing
    assert bench.iterations(32) == pytest.approx(300)


def test_instant_power_is_preferred_to_the_mean_of_a_second() -> None:
    without = Row(0.0, instant_mw=MISSING)
    assert Bench([without]).meter.card.watts == 110.0
    assert math.isnan(Bench([without._replace(mean_mw=MISSING)]).meter.card.watts)


def test_a_card_is_found_by_index_or_uuid() -> None:
    nvml = RecordedNvml([Row(0.0)], HandClock())
    assert open_card(library=nvml) and open_card("GPU-c0ffee", library=nvml)
    assert nvml.handles == [0, "GPU-c0ffee"]
    assert open_card(7, library=nvml) is None
    assert nvml.users == 2  # the third has left again


# -- no card, and a card that goes -----------------------------------------------------------------


def test_without_pynvml_there_is_no_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_gpu_meter() is None


def test_without_driver_there_is_no_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = RecordedNvml([Row(0.0)], HandClock(), init=Fault(DRIVER_NOT_LOADED))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_gpu_meter() is None


@pytest.mark.parametrize("code", [15, 1, 999])  # 999, unknown error: lost once nothing is told
def test_a_lost_card_turns_the_meter_off_with_one_warning(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench([Row(0.0), lost(Row(1.0), code)])
    bench.iterations(4)
    bench.meter.begin()
    bench.clock.advance(1.0)
    with caplog.at_level(logging.WARNING):
        assert not bench.meter.sample()
    energy = bench.meter.end(0.5, 8)
    assert energy == (PowerModel().joules(0.5, 8), PowerModel().watts(8), False)
    assert not bench.meter.is_measured and bench.meter.card is UNKNOWN
    assert len(caplog.records) == 1 and "modelled from now on" in caplog.text
    bench.meter.close()
    bench.meter.close()
    assert bench.nvml.users == 0


def test_leaving_a_driver_that_is_gone_is_no_error() -> None:
    nvml = RecordedNvml([Row(0.0)], HandClock())
    card = open_card(library=nvml)
    assert card is not None
    nvml.nvmlShutdown()  # by somebody else in this process
    with pytest.raises(CardLostError):
        card.read()
    card.close()


def test_a_card_with_neither_counter_nor_power_is_modelled_and_read_on() -> None:
    bench = Bench([Row(0.0, energy_mj=MISSING, instant_mw=MISSING, mean_mw=MISSING)])
    bench.meter.begin()
    assert not bench.meter.end(0.5, 8).is_measured
    assert bench.meter.card.temperature_celsius == 34.0


# -- energy ----------------------------------------------------------------------------------------


def test_constant_power_adds_up_exactly() -> None:
    bench = Bench(recording([(80, 400)]))
    assert bench.iterations(320) == pytest.approx(400 * 10)
    assert bench.told == pytest.approx([400 * 2 * TICK_S] * 320)


def test_changing_power_adds_up_to_the_counter() -> None:
    bench = Bench(recording([(16, 100), (40, 700), (24, 200), (40, 300)]))
    spent = bench.iterations(480)
    counted = bench.meter.card.joules - 5e6
    assert counted == 12.5 * 100 - 10.5 * 100 + 5 * 700 + 3 * 200 + 5 * 300
    assert spent == pytest.approx(counted, abs=100 * PERIOD_S * REPAY_S)
    # What was told too little is repaid over a second, so no iteration is out of proportion.
    assert min(bench.told) >= 0 and max(bench.told) < 1.2 * 700 * 2 * TICK_S


def test_a_power_reading_that_is_off_does_not_add_up() -> None:
    rows = [row._replace(instant_mw=360_000) for row in recording([(480, 400)])]
    # A tenth of a minute's energy would be missing; what is owed is a tenth of a second's.
    assert Bench(rows).iterations(1920) == pytest.approx(400 * 60, abs=1.05 * 40 * REPAY_S)


def test_a_counter_without_power_is_enough() -> None:
    bench = Bench(recording([(80, 400)], instant_mw=MISSING, mean_mw=MISSING))
    assert bench.iterations(320) == pytest.approx(4000, abs=1.0)
    bench.meter.begin()
    assert bench.meter.end(0.0, 1).watts == 400.0


def test_power_is_integrated_where_there_is_no_counter() -> None:
    rows = recording([(16, 100), (40, 700), (40, 300)], energy_mj=MISSING)
    bench = Bench(rows)
    spent = bench.iterations(384)
    watts = [row.instant_mw / 1000 for row in rows if isinstance(row.instant_mw, int)]
    integral = PERIOD_S * sum((a + b) / 2 for a, b in pairwise(watts))
    assert math.isnan(bench.meter.card.joules)
    assert spent == pytest.approx(integral, abs=100 * PERIOD_S)


@pytest.mark.parametrize("excluded_s", [1.0, 5.0])
def test_excluded_time_is_not_counted(excluded_s: float) -> None:
    # A second of work at 400 W around excluded time at 100 W, in phase with the readings.
    around = [(4, 400), (round(excluded_s / PERIOD_S), 100), (4, 400)]
    bench = Bench(recording(around * 20))
    counted = bench.iterations(20, work_s=1.0, excluded_s=excluded_s)
    assert counted == pytest.approx(400 * 20, abs=300 * 2 * PERIOD_S * REPAY_S)
    everything = Bench(recording(around * 20))
    assert everything.iterations(20, 1.0 + excluded_s) > counted + 90 * 20 * excluded_s


def test_inside_a_reading_all_time_is_taken_to_draw_alike() -> None:
    bench = Bench(recording([(80, 400)]))
    assert bench.iterations(160, excluded_s=2 * TICK_S) == pytest.approx(400 * 160 * 2 * TICK_S)


def test_an_iteration_that_never_ended_is_charged_to_nobody() -> None:
    # The trace is served: `begin` was called, and an hour later the next episode begins.
    rows = recording([(16, 400), (8, 90)])
    rows += [Row(3600.0, 5_000_000_000 + 500_000_000, 90_000), Row(3600.125, 5_500_011_250, 90_000)]
    bench = Bench(rows)
    bench.iterations(32)
    bench.meter.begin()
    bench.clock.now_s = 3600.0
    bench.meter.sample()
    bench.told.clear()
    bench.iterations(4)
    assert bench.told == pytest.approx([90 * 2 * TICK_S] * 4)


def test_a_counter_that_answers_late_or_starts_anew_loses_nothing() -> None:
    rows = recording([(80, 400)])
    for i in range(20, 30):
        rows[i] = rows[i]._replace(energy_mj=Fault(TIMEOUT), instant_mw=Fault(TIMEOUT))
    for i in range(50, 81):
        energy_mj = rows[i].energy_mj
        assert isinstance(energy_mj, int)
        rows[i] = rows[i]._replace(energy_mj=energy_mj - 5_000_000_000)
    assert Bench(rows).iterations(320) == pytest.approx(4000)


# -- the thread and the engine ---------------------------------------------------------------------


def test_a_step_never_asks_the_driver() -> None:
    bench = Bench([Row(0.0)])
    calls = bench.nvml.calls
    bench.iterations(1)  # too short for a reading
    assert bench.meter.card.watts == 112.0 and bench.nvml.calls == calls


def test_a_thread_reads_the_card_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = RecordedNvml([Row(0.0)], HandClock())
    readings: list[int] = []
    enough = threading.Event()

    def on_power() -> None:
        readings.append(1)
        if len(readings) == 3:
            enough.set()

    nvml.on_power = on_power
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = open_gpu_meter()
    assert meter is not None and meter.is_measured
    assert "gpu-meter" in {thread.name for thread in threading.enumerate()}
    assert enough.wait(30)
    meter.close()
    assert nvml.users == 0 and not meter.is_measured
    assert "gpu-meter" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("rate_hz", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_rate_is_refused(rate_hz: float) -> None:
    with pytest.raises(UserError, match="rate_hz"):
        Bench([Row(0.0)]).meter.start(rate_hz)


def test_the_engine_meters_a_card_and_shows_it(clock: HandClock) -> None:
    rows = [row._replace(at_s=row.at_s + clock.now_s) for row in recording([(80, 400)])]
    bench = Bench(rows, clock)
    requests = [Request(0, 0, [1], 9, 0.0)]
    engine: Any = scripted_engine(
        clock, ClassTable((SLOClass("chat", math.inf),)), requests, [[5] * 9], slots=1
    )
    engine.power = bench.meter
    metrics = ServingMetrics()
    spent = 0.0
    begun_s = clock.now_s
    while (view := engine.next_decision()) is not None:
        outcome = engine.run_iteration(view, ListedPlans([ORDINARY]))
        bench.meter.sample()
        assert engine.energy.is_measured
        spent += outcome.energy_joules
        metrics.on_iteration(engine, view, outcome)
    assert spent == pytest.approx(400 * (clock.now_s - begun_s))
    text = metrics.text()
    for sample in (
        'draftgym:energy_joules_total{source="measured"}',
        "draftgym:gpu_power_watts 400",
        f'draftgym:gpu_memory_bytes{{kind="used"}} {3 << 30}',
        f'draftgym:gpu_memory_bytes{{kind="total"}} {141 << 30}',
        'draftgym:gpu_clock_hertz{domain="sm"} 1980000000',
        'draftgym:gpu_clock_hertz{domain="memory"} 3201000000',
        "draftgym:gpu_temperature_celsius 34",
    ):
        assert sample in text


def test_both_meters_are_what_the_engine_asks() -> None:
    meters: list[Meter] = [PowerMeter(), Bench([Row(0.0)]).meter]
    assert meters[0].card is None and meters[1].card is not None


def test_the_double_has_the_installed_packages_functions() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    double = RecordedNvml([Row(0.0)], HandClock())
    for name, ours in inspect.getmembers(double, callable):
        if name.startswith("nvml"):
            function: Callable[..., Any] = getattr(pynvml, name)
            needed = list(inspect.signature(ours).parameters)
            assert list(inspect.signature(function).parameters)[: len(needed)] == needed, name
    for name in ("NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU"):
        assert getattr(pynvml, name) == getattr(double, name)
    assert pynvml.NVMLError(TIMEOUT).value == TIMEOUT
