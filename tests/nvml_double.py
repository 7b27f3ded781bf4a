"""A double of `pynvml`: the functions that `engine.nvml` calls, answered from a recording.

Rows are in the driver's own units and are replayed by a clock that the test moves: a call gets the
last row that was recorded by then. A `Fault` in place of a number is raised as the driver's error.
No card was at hand: rows were written by the documentation, with an H200's magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

NOT_SUPPORTED, TIMEOUT, GPU_IS_LOST, UNINITIALIZED, DRIVER_NOT_LOADED = 3, 10, 15, 1, 9
NOT_FOUND = 6
POWER_INSTANT = 186
PERIOD_S = 0.125  # of recordings that `recording` makes; binary, so that sums are exact


class Fault(NamedTuple):
    """An error code of nvml.h."""

    code: int


Recorded = int | Fault


class Row(NamedTuple):
    """What a card told at a time."""

    at_s: float
    energy_mj: Recorded = 5_000_000_000  # since the driver was loaded, half a day ago
    instant_mw: Recorded = 112_000
    mean_mw: Recorded = 110_000
    used_bytes: Recorded = 3 << 30
    total_bytes: int = 141 << 30
    sm_mhz: Recorded = 1980
    memory_mhz: Recorded = 3201
    celsius: Recorded = 34


class RecordedNvml:
    """The module. `users` is how often it was initialised and not left."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        """As in pynvml: the code is in `value`."""

        def __init__(self, value: int) -> None:
            super().__init__(f"NVML error {value}")
            self.value = value

    def __init__(self, rows: Sequence[Row], clock: Callable[[], float], init: Recorded = 0) -> None:
        """`init` is how initialising goes. `on_power` is called whenever power is asked for."""
        self.rows, self.clock, self.init = list(rows), clock, init
        self.users = self.calls = 0
        self.handles: list[int | str] = []
        self.on_power: Callable[[], object] = lambda: None

    def nvmlInit(self) -> None:
        self._told(self.init)
        self.users += 1

    def nvmlShutdown(self) -> None:
        if not self.users:
            raise self.NVMLError(UNINITIALIZED)
        self.users -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        return self._handle(index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        return self._handle(uuid)

    def nvmlDeviceGetFieldValues(self, handle: object, fieldIds: Sequence[int]) -> list[Any]:
        assert list(fieldIds) == [POWER_INSTANT]
        self.on_power()
        told = self._row(handle).instant_mw
        if isinstance(told, Fault):  # the call succeeds, its one field does not
            return [SimpleNamespace(nvmlReturn=told.code, value=SimpleNamespace(uiVal=0))]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=told))]

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return self._told(self._row(handle).mean_mw)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:
        return self._told(self._row(handle).energy_mj)

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> Any:
        row = self._row(handle)
        used = self._told(row.used_bytes)
        return SimpleNamespace(total=row.total_bytes, free=row.total_bytes - used, used=used)

    def nvmlDeviceGetClockInfo(self, handle: object, type: int) -> int:
        row = self._row(handle)
        return self._told(
            {self.NVML_CLOCK_SM: row.sm_mhz, self.NVML_CLOCK_MEM: row.memory_mhz}[type]
        )

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._told(self._row(handle).celsius)

    def _handle(self, card: int | str) -> object:
        if card not in (0, "GPU-c0ffee"):
            raise self.NVMLError(NOT_FOUND)
        self.handles.append(card)
        return self

    def _row(self, handle: object) -> Row:
        assert handle is self
        self.calls += 1
        if not self.users:
            raise self.NVMLError(UNINITIALIZED)
        now_s = self.clock()
        return [row for row in self.rows if row.at_s <= now_s][-1]

    def _told(self, recorded: Recorded) -> int:
        if isinstance(recorded, Fault):
            raise self.NVMLError(recorded.code)
        return recorded


def lost(row: Row, code: int = GPU_IS_LOST) -> Row:
    """The row with every question answered by that error."""
    fault = Fault(code)
    return Row(row.at_s, fault, fault, fault, fault, row.total_bytes, fault, fault, fault)


def recording(parts: Iterable[tuple[int, int]], **more: Any) -> list[Row]:
    """Rows of a card that draws so many watts for so many periods, part after part, from 0 s on.

    The counter is the exact integral; power is told late, of the period that has just ended.
    """
    drawn = [watts for periods, watts in parts for _ in range(periods)]
    energy_mj = 5_000_000_000
    rows = [Row(0.0, energy_mj, 1000 * drawn[0], 1000 * drawn[0])]
    for watts in drawn:
        energy_mj += int(1000 * watts * PERIOD_S)
        rows.append(Row(len(rows) * PERIOD_S, energy_mj, 1000 * watts, 1000 * watts))
    return [row._replace(**more) for row in rows]
