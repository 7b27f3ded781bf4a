"""What a graphics card says of itself through NVML: power, energy, memory, clocks, temperature.

The only module that imports `pynvml` (the package nvidia-ml-py), and only when a card is opened.
What readings mean for the energy of an iteration is worked out in `sampled_energy.py`; who asks
the driver, and when, is decided in `gpu_meter.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

# Codes of nvml.h. With any other, such as "not supported" (3), only the one reading is missing.
LOST_CODES = frozenset({1, 9, 12, 15, 16, 18})
"""Uninitialised, no driver, no library, card off the bus, reset needed, other driver version."""
POWER_INSTANT_FIELD = 186  # NVML_FI_DEV_POWER_INSTANT, which an older pynvml has no name for


class CardReading(NamedTuple):
    """One look at a card; NaN where it does not tell."""

    watts: float
    memory_used_bytes: float  # by all processes
    memory_total_bytes: float
    sm_clock_hertz: float
    memory_clock_hertz: float
    temperature_celsius: float
    joules: float  # since the driver was loaded; Volta and later


UNKNOWN = CardReading(*[math.nan] * len(CardReading._fields))


class CardLostError(Exception):
    """The driver or the card no longer answers, and will not until the process starts anew."""


class NvmlCard:
    """One card, opened by `open_card`."""

    def __init__(self, library: Any, handle: Any) -> None:
        """`library` is the module pynvml, initialised; `handle` is the card's."""
        self._nvml, self._handle = library, handle
        self._is_open = True

    def read(self) -> CardReading:
        """Ask the driver for everything: up to some milliseconds, most of them for the energy.

        Raises CardLostError when driver or card are gone, or nothing at all is answered.
        """
        nvml = self._nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo)
        reading = CardReading(
            watts=self._watts(),
            memory_used_bytes=_scaled(memory and memory.used),
            memory_total_bytes=_scaled(memory and memory.total),
            sm_clock_hertz=_scaled(self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM), 1e6),
            memory_clock_hertz=_scaled(
                self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM), 1e6
            ),
            temperature_celsius=_scaled(
                self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
            ),
            # Last, so that it is of the moment at which `read` returns.
            joules=_scaled(self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption), 1e-3),
        )
        if all(map(math.isnan, reading)):
            raise CardLostError("it answers no question any more")
        return reading

    def close(self) -> None:
        """Leave NVML, which counts those who use it; closing twice is once."""
        if self._is_open:
            self._is_open = False
            with suppress(self._nvml.NVMLError):  # a driver that is gone cannot be left
                self._nvml.nvmlShutdown()

    def _watts(self) -> float:
        """Power now. `nvmlDeviceGetPowerUsage` is a mean over the last second since Ampere."""
        fields = self._ask(self._nvml.nvmlDeviceGetFieldValues, [POWER_INSTANT_FIELD])
        if fields and fields[0].nvmlReturn == 0:
            return _scaled(fields[0].value.uiVal, 1e-3)
        return _scaled(self._ask(self._nvml.nvmlDeviceGetPowerUsage), 1e-3)

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """The driver's answer, None when it has none."""
        try:
            return question(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            if error.value in LOST_CODES:
                raise CardLostError(str(error)) from error
            return None


def open_card(card: int | str = 0, library: Any = None) -> NvmlCard | None:
    """The card of that NVML index, or of that UUID as `nvidia-smi -L` prints it.

    None without pynvml, driver or such a card. NVML counts all cards of a machine in the order of
    their bus, CUDA those in CUDA_VISIBLE_DEVICES: where they may differ, give the UUID
    (`"GPU-" + str(torch.cuda.get_device_properties(device).uuid)`). `library` takes pynvml's place.
    """
    library = library or _pynvml()
    if library is None:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    find = library.nvmlDeviceGetHandleByIndex
    if isinstance(card, str):
        find = library.nvmlDeviceGetHandleByUUID
    try:
        return NvmlCard(library, find(card))
    except library.NVMLError:
        library.nvmlShutdown()
        return None


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def _scaled(value: float | None, unit: float = 1.0) -> float:
    return math.nan if value is None else value * unit
