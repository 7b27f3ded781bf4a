"""What a device can do and what it is doing: bandwidth of reading memory, and time in kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

import torch

from engine.card import wait_for

WARM_UPS = 3
Interval = tuple[float, float]


class Bandwidth(NamedTuple):
    """Bytes a second, the best of several passes over one buffer."""

    read: float
    """Of a sum, which reads every byte once."""
    copied: float
    """Of a copy within the memory, bytes read and written."""

    @property
    def ceiling(self) -> float:
        """The larger: no pass over weights is held to less than the memory was seen to give."""
        return max(self.read, self.copied)


def measure_bandwidth(device: torch.device, n_bytes: int, repeats: int = 20) -> Bandwidth:
    """Bandwidth of a buffer of about `n_bytes`; take it far larger than the last cache."""
    source = torch.ones(max(1, n_bytes // 4), dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    size = source.numel() * 4
    read_s = min(call_times(device, source.sum, repeats))
    copy_s = min(call_times(device, lambda: target.copy_(source), repeats))
    return Bandwidth(size / read_s, 2 * size / copy_s)


def call_times(device: torch.device, call: Callable[[], object], repeats: int) -> Iterator[float]:
    """Seconds that each of `repeats` calls takes on an idle device, until it is done."""
    for turn in range(WARM_UPS + repeats):
        wait_for(device)
        begun = perf_counter()
        call()
        wait_for(device)
        if turn >= WARM_UPS:
            yield perf_counter() - begun


class BusyTime:
    """Seconds in which the device ran a kernel or a copy; known once the watch is over."""

    seconds: float = float("nan")


@contextmanager
def busy_time(device: torch.device) -> Iterator[BusyTime]:
    """Within: every kernel on the card is recorded. Launching takes longer then, kernels do not."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    busy = BusyTime()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        yield busy
        wait_for(device)
    busy.seconds = 1e-6 * covered(
        (event.time_range.start, event.time_range.end)
        for event in recorded.events()
        if event.device_type == DeviceType.CUDA
    )


def covered(intervals: Iterable[Interval]) -> float:
    """Length of the union: what runs side by side counts once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
