"""Power and memory of this machine: measured where it offers them, else modelled and labelled.

Reads the processor's counters; a graphics card's meter is in `gpu_meter.py`. What a figure costs a
controller is decided elsewhere.
"""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from engine.errors import UserError
from engine.nvml import CardReading

POWERCAP = Path("/sys/class/powercap")
STATM = Path("/proc/self/statm")


class Energy(NamedTuple):
    """What an iteration drew."""

    joules: float
    watts: float  # mean over the iteration; of a graphics card, as last read
    is_measured: bool


@dataclass(frozen=True)
class PowerModel:
    """Modelled power: idle + (peak - idle) · utilisation^exponent. Every constant is ours.

    Utilisation is the tokens of a pass over those that fill the arithmetic units; the curve is
    concave, since even one token streams all weights. (Published H100 rows are flatter still:
    ML.ENERGY has 486 W at batch 8 and 690 W at 256.) Watts are for a laptop's processor package:
    use them to compare controllers on one machine, not machines.
    """

    idle_watts: float = 10.0
    peak_watts: float = 45.0
    exponent: float = 0.5
    full_tokens: float = 64.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_watts <= self.peak_watts < float("inf"):
            raise UserError(
                f"power model: idle_watts {self.idle_watts} and peak_watts {self.peak_watts}; "
                "expected 0 <= idle <= peak"
            )
        for name in ("exponent", "full_tokens"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UserError(
                    f"power model: {name} is {getattr(self, name)}; expected a positive number"
                )

    def watts(self, tokens_per_pass: float) -> float:
        """Power while a pass over that many tokens runs; 0 tokens is idle."""
        utilisation = min(max(tokens_per_pass / self.full_tokens, 0.0), 1.0)
        span = self.peak_watts - self.idle_watts
        return float(self.idle_watts + span * utilisation**self.exponent)

    def joules(self, busy_s: float, tokens_per_pass: float) -> float:
        """Energy of `busy_s` seconds of such passes."""
        return self.watts(tokens_per_pass) * busy_s


class Meter(Protocol):
    """What the engine asks about energy, in this order for every iteration.

    `PowerMeter` is that of the processor, `engine.gpu_meter.GpuMeter` that of a graphics card.
    """

    model: PowerModel

    @property
    def is_measured(self) -> bool:
        """False: modelled."""
        ...

    @property
    def card(self) -> CardReading | None:
        """The latest reading of the graphics card that is metered, None for another meter."""
        ...

    def begin(self) -> None:
        """An iteration starts."""
        ...

    def pause(self) -> None:
        """What follows is not the engine's work, until `resume`."""
        ...

    def resume(self) -> None:
        """The engine works on."""
        ...

    def end(self, busy_s: float, tokens_per_pass: float) -> Energy:
        """The iteration is over, after `busy_s` seconds and passes over so many tokens (mean)."""
        ...


class PowerMeter:
    """Energy of iterations: from the RAPL counters of all processor packages, else the model.

    RAPL counts the whole machine, other processes included. Only what passes between `begin` and
    `end` is counted, less what lies between `pause` and `resume`: training between two steps is
    not charged to requests.
    """

    def __init__(self, model: PowerModel | None = None, powercap: Path = POWERCAP) -> None:
        self.model = model or PowerModel()
        self._counters = _package_counters(powercap)
        self._start: list[int] | None = None
        self._microjoules: int | None = 0  # None: a reading is missing

    @property
    def is_measured(self) -> bool:
        """False: modelled."""
        return bool(self._counters)

    @property
    def card(self) -> CardReading | None:
        """No graphics card is metered here."""
        return None

    def begin(self) -> None:
        """An iteration starts."""
        self._microjoules = 0
        self._start = self._read()

    def pause(self) -> None:
        """What follows is not the engine's work, until `resume`."""
        start, self._start = self._start, None
        stop = self._read() if start is not None else None
        if start is None or stop is None or self._microjoules is None:
            self._microjoules = None
            return
        for (_, span), a, b in zip(self._counters, start, stop, strict=True):
            self._microjoules += b - a if b >= a else b - a + span  # the counter wraps round

    def resume(self) -> None:
        """The engine works on."""
        self._start = self._read()

    def end(self, busy_s: float, tokens_per_pass: float) -> Energy:
        """The iteration that `begin` opened is over, after `busy_s` seconds.

        `tokens_per_pass` (mean tokens a network pass) is what the model needs; a counter that
        stopped answering turns the meter to the model for good.
        """
        self.pause()
        if self._microjoules is None:
            joules = self.model.joules(busy_s, tokens_per_pass)
            return Energy(joules, self.model.watts(tokens_per_pass), False)
        joules = self._microjoules / 1e6
        return Energy(joules, joules / busy_s if busy_s > 0 else 0.0, True)

    def _read(self) -> list[int] | None:
        """Microjoules by package; None when there are no counters (any more)."""
        try:
            values = [int(path.read_text()) for path, _ in self._counters]
        except (OSError, ValueError):
            self._counters = []
            return None
        return values or None


def _package_counters(powercap: Path) -> list[tuple[Path, int]]:
    """Readable `energy_uj` files of whole packages and the range after which each wraps.

    Parts (`intel-rapl:0:1`) are inside their package, and `psys` holds everything: not added.
    """
    counters: list[tuple[Path, int]] = []
    for folder in sorted(powercap.glob("intel-rapl:*")):
        if folder.name.count(":") != 1:
            continue
        try:
            if not (folder / "name").read_text().startswith("package"):
                continue
            int((folder / "energy_uj").read_text())  # often for root only
            span = int((folder / "max_energy_range_uj").read_text())
        except (OSError, ValueError):
            return []  # one package of two would be half a measurement
        counters.append((folder / "energy_uj", span))
    return counters


def resident_bytes(statm: Path = STATM) -> int:
    """Memory that this process holds now; its peak so far where /proc does not tell."""
    try:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # bytes there, KiB elsewhere
