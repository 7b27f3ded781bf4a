"""Admission: which waiting request gets a free slot, and which are withdrawn before they do.

The order itself is `engine.orders`; what a request needs beside a slot is the caller's to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from engine.orders import ORDERS, OrderName, Promises, Waiting, place
from engine.protocol import Floats, Ints
from engine.request import Request

Fits = Callable[[int, Request], bool]


class Scheduler:
    """Requests that have not got a slot yet."""

    def __init__(
        self,
        requests: Sequence[Request],
        class_count: int,
        order: OrderName = "fcfs",
        promises: Sequence[Promises] = (),
    ) -> None:
        """`promises` by class; none by default."""
        self.future = deque(sorted(requests, key=lambda r: (r.arrival_s, r.id)))
        self.waiting: list[Waiting] = []
        self.class_count = class_count
        self.order = ORDERS[order]
        self.promises = list(promises) or [Promises()] * class_count
        self.most_age_s = float("inf")
        """Waiting longer than this lifts a request of any class over the order."""
        self._cancellations = deque(
            sorted((r.cancel_at_s, r.id) for r in requests if r.cancel_at_s is not None)
        )

    def arrive(self, clock_s: float) -> list[Request]:
        """Move what has arrived by now into the queue; the newcomers."""
        newcomers = []
        while self.future and self.future[0].arrival_s <= clock_s:
            request = self.future.popleft()
            newcomers.append(request)
            self.waiting.append(Waiting(request, request.arrival_s))
        return newcomers

    def cancellations(self, clock_s: float) -> list[int]:
        """Ids of the requests that their users withdraw by now; each is told once."""
        due = []
        while self._cancellations and self._cancellations[0][0] <= clock_s:
            due.append(self._cancellations.popleft()[1])
        return due

    def next_arrival_s(self) -> float:
        """When the next request comes, inf when none does."""
        return self.future[0].arrival_s if self.future else float("inf")

    def put_back(self, entry: Waiting) -> None:
        """A request that had to give up its slot waits again."""
        self.waiting.append(entry)

    def withdraw(self, request_id: int) -> Request | None:
        """Take a request out that waits or has not come yet; None when there is none such."""
        for entry in self.waiting:
            if entry.request.id == request_id:
                self.waiting.remove(entry)
                return entry.request
        for request in self.future:
            if request.id == request_id:
                self.future.remove(request)
                return request
        return None

    def foremost(self, clock_s: float) -> Waiting:
        """The waiting request that is next; there must be one."""
        return min(self.waiting, key=lambda entry: self._key(entry, clock_s))

    def key(self, request: Request, clock_s: float) -> tuple[float, ...]:
        """Where a request that came at its arrival stands in the order, the smallest first."""
        return self._key(Waiting(request, request.arrival_s), clock_s)

    def admit(
        self,
        free_slots: Sequence[int],
        running: int,
        max_running: int,
        clock_s: float = 0.0,
        fits: Fits = lambda slot, request: True,
    ) -> list[tuple[int, Request]]:
        """Pairs of free slot and request, the lowest slot first so that batches stay dense.

        `fits` takes what the request needs beside its slot, or says no. Who is next and does not
        fit holds the others up: were they to overtake it, a long prompt might never get in.
        """
        room = min(len(free_slots), max(max_running, 1) - running, len(self.waiting))
        admitted: list[tuple[int, Request]] = []
        for slot in free_slots[: max(room, 0)]:
            entry = self.foremost(clock_s)
            if not fits(slot, entry.request):
                break
            self.waiting.remove(entry)
            admitted.append((slot, entry.request))
        return admitted

    def queue_view(self, clock_s: float) -> tuple[Ints, Floats]:
        """Waiting requests and the oldest one's age, by class."""
        queued = np.zeros(self.class_count, np.int64)
        oldest = np.zeros(self.class_count)
        for entry in self.waiting:
            slo_class = entry.request.slo_class
            queued[slo_class] += 1
            oldest[slo_class] = max(oldest[slo_class], clock_s - entry.since_s)
        return queued, oldest

    def _key(self, entry: Waiting, clock_s: float) -> tuple[float, ...]:
        promises = self.promises[entry.request.slo_class]
        return place(self.order, entry, promises, clock_s, self.most_age_s)
