"""Which machine this is: enough to tell whether a profile was measured here."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Machine:
    """What step times depend on, as far as the system tells it."""

    processor: str
    cores: int
    """Logical ones that this process may use."""
    memory_gib: int
    system: str

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that are the same for the same machine."""
        text = "|".join(str(value) for value in asdict(self).values())
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, {self.memory_gib} GiB, {self.system}"


def this_machine(cpuinfo: Path = CPUINFO) -> Machine:
    """The machine that we run on."""
    return Machine(
        processor=_processor(cpuinfo),
        cores=_usable_cores(),
        memory_gib=_memory_gib(),
        system=f"{platform.system()} {platform.machine()}",
    )


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> int:
    """Rounded, since a kernel keeps a little for itself; 0 where the system does not tell."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (ValueError, OSError, AttributeError):
        return 0
