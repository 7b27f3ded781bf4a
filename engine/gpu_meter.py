"""The energy meter of a graphics card: a thread reads the card, the engine reads the thread.

The driver takes up to milliseconds to answer, so the step never asks it. How readings become the
energy of iterations, and how exact that is, is in `sampled_energy.py`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from threading import Event, Lock, Thread
from time import perf_counter

from engine.errors import UserError
from engine.nvml import UNKNOWN, CardLostError, CardReading, NvmlCard, open_card
from engine.sampled_energy import PowerIntegral, SampledEnergy
from engine.telemetry import Energy, PowerModel

LOG = logging.getLogger("draftgym.gpu")
RATE_HZ = 10.0


class GpuMeter:
    """A `Meter` of one card as a whole: other processes on it are counted, the processor is not.

    It serves one episode after another until `close`. Nobody reads the card before `start`, or a
    call of `sample`.
    """

    def __init__(
        self,
        card: NvmlCard,
        model: PowerModel | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`model` is what energy is taken from, and labelled so, once the card is lost."""
        self.model = model or PowerModel()
        self._card, self._clock = card, clock
        self._energy, self._lock = SampledEnergy(), Lock()  # the lock is of both threads' doings
        self._reading = UNKNOWN
        self._integral: PowerIntegral | None = None  # where the card has no counter
        self._is_measured = False
        self._stop = Event()
        self._thread: Thread | None = None

    @property
    def is_measured(self) -> bool:
        """False: modelled, since the card is lost, or tells neither energy nor power."""
        return self._is_measured

    @property
    def card(self) -> CardReading:
        """The latest reading; all NaN before the first, and once the card is lost."""
        return self._reading

    # -- the engine's side: never the driver ---------------------------------------------------

    def begin(self) -> None:
        """An iteration starts."""
        with self._lock:
            self._energy.begin(self._clock())

    def pause(self) -> None:
        """What follows is not the engine's work, until `resume`."""
        with self._lock:
            self._energy.pause(self._clock())

    def resume(self) -> None:
        """The engine works on."""
        with self._lock:
            self._energy.resume(self._clock())

    def end(self, busy_s: float, tokens_per_pass: float) -> Energy:
        """The iteration that `begin` opened is over; the arguments are for the model alone.

        Watts are those of the latest reading: no mean over so short a time can be had.
        """
        with self._lock:
            joules = self._energy.end(self._clock())
            if self._is_measured:
                return Energy(joules, self._energy.watts, True)
        watts = self.model.watts(tokens_per_pass)
        return Energy(self.model.joules(busy_s, tokens_per_pass), watts, False)

    # -- the driver's side ---------------------------------------------------------------------

    def sample(self) -> bool:
        """Read the card. False when it is lost: then the meter models, and a warning was given."""
        try:
            reading = self._card.read()
        except CardLostError as error:
            LOG.warning("the graphics card is lost, its energy is modelled from now on: %s", error)
            self._turn_off()
            return False
        with self._lock:
            now_s = self._clock()
            if self._reading is UNKNOWN:
                self._is_measured = not math.isnan(reading.joules) or not math.isnan(reading.watts)
                self._integral = PowerIntegral() if math.isnan(reading.joules) else None
            joules = reading.joules
            if self._integral is not None:
                joules = self._integral.add(now_s, reading.watts)
            self._energy.sample(now_s, joules, reading.watts)
            self._reading = reading
        return True

    def start(self, rate_hz: float = RATE_HZ) -> None:
        """Read the card `rate_hz` times a second from now on, in a thread that ends with us.

        Raises UserError for a rate that is not positive, and when it reads already.
        """
        if self._thread is not None:
            raise UserError("GPU meter: it reads already; close it, and open another to read anew")
        if not 0 < rate_hz < math.inf:
            raise UserError(
                f"GPU meter: rate_hz is {rate_hz}; expected readings per second, such as {RATE_HZ}"
            )
        self._thread = Thread(target=self._run, args=(1 / rate_hz,), name="gpu-meter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and leave NVML; from then on the meter models. Closing twice is once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._card.close()
        self._turn_off()

    def _run(self, period_s: float) -> None:
        while not self._stop.wait(period_s):
            if not self.sample():
                return

    def _turn_off(self) -> None:
        with self._lock:
            self._is_measured = False
            self._reading = UNKNOWN


def open_gpu_meter(card: int | str = 0) -> GpuMeter | None:
    """A meter that runs, for `card` as `engine.nvml.open_card` takes it.

    None without pynvml, driver or such a card.
    """
    opened = open_card(card)
    if opened is None:
        return None
    meter = GpuMeter(opened)
    if not meter.sample():
        meter.close()
        return None
    meter.start()
    return meter
