"""Admission: which waiting request gets a free slot. First come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from engine.protocol import Floats, Ints
from engine.request import Request


class Scheduler:
    """Requests that have not got a slot yet, in order of arrival."""

    def __init__(self, requests: Sequence[Request], class_count: int) -> None:
        self.future = deque(sorted(requests, key=lambda r: (r.arrival_s, r.id)))
        self.waiting: deque[Request] = deque()
        self.class_count = class_count

    def arrive(self, clock_s: float) -> None:
        """Move what has arrived by now into the queue."""
        while self.future and self.future[0].arrival_s <= clock_s:
            self.waiting.append(self.future.popleft())

    def next_arrival_s(self) -> float:
        """When the next request comes, inf when none does."""
        return self.future[0].arrival_s if self.future else float("inf")

    def admit(
        self, free_slots: Sequence[int], running: int, max_running: int
    ) -> list[tuple[int, Request]]:
        """Pairs of free slot and request, the lowest slot first so that batches stay dense."""
        room = min(len(free_slots), max(max_running, 1) - running, len(self.waiting))
        return [(free_slots[i], self.waiting.popleft()) for i in range(max(room, 0))]

    def queue_view(self, clock_s: float) -> tuple[Ints, Floats]:
        """Waiting requests and the oldest one's age, by class."""
        queued = np.zeros(self.class_count, np.int64)
        oldest = np.zeros(self.class_count)
        for request in self.waiting:
            queued[request.slo_class] += 1
            oldest[request.slo_class] = max(oldest[request.slo_class], clock_s - request.arrival_s)
        return queued, oldest
