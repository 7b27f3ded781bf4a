"""Admission: which waiting request gets a free slot, and which are withdrawn before they do.

The order itself is `engine.orders`; what a request needs beside a slot is the caller's to say.
No step looks at the whole queue: under every order a request's key stays as it is until its age
lifts it, and of a class the oldest is lifted first. So who is next is the first in order, the
oldest of a class, or the first of those that lost their slot for want of memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, ValuesView

import numpy as np

from engine.orders import ORDERS, Key, OrderName, Promises, Waiting, place
from engine.protocol import Floats, Ints
from engine.request import Request
from engine.waiting_heap import WaitingHeap

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
        self.order = ORDERS[order]
        self.promises = list(promises) or [Promises()] * class_count
        self.most_age_s = float("inf")
        """Waiting longer than this lifts a request of any class over the order."""
        self._arrivals = deque(sorted(requests, key=lambda r: (r.arrival_s, r.id)))
        self._to_come = {r.id: r for r in requests}  # those of the arrivals not withdrawn
        self._cancellations = deque(
            sorted((r.cancel_at_s, r.id) for r in requests if r.cancel_at_s is not None)
        )
        self._waiting: dict[int, Waiting] = {}  # by request id
        self._queued = np.zeros(class_count, np.int64)
        self._displaced = WaitingHeap(self._waiting)
        self._in_order = WaitingHeap(self._waiting)
        self._by_age = [WaitingHeap(self._waiting) for _ in range(class_count)]

    @property
    def waiting(self) -> ValuesView[Waiting]:
        """The queue, whoever came to wait last at its end."""
        return self._waiting.values()

    def arrive(self, clock_s: float) -> list[Request]:
        """Move what has arrived by now into the queue; the newcomers."""
        newcomers = []
        while self.next_arrival_s() <= clock_s and self._arrivals:
            request = self._arrivals.popleft()
            del self._to_come[request.id]
            newcomers.append(request)
            self.put_back(Waiting(request, request.arrival_s))
        return newcomers

    def rebuild(self) -> None:
        """Make the queue's heaps and counts of those who come and wait (`engine.snapshot`)."""
        self._arrivals = deque(sorted(self._to_come.values(), key=lambda r: (r.arrival_s, r.id)))
        waiting, self._waiting = list(self.waiting), {}
        self._queued = np.zeros_like(self._queued)
        self._displaced, self._in_order, *self._by_age = (
            WaitingHeap(self._waiting) for _ in range(2 + len(self._by_age))
        )
        for entry in waiting:
            self.put_back(entry)

    def cancellations(self, clock_s: float) -> list[int]:
        """Ids of the requests that their users withdraw by now; each is told once."""
        due = []
        while self._cancellations and self._cancellations[0][0] <= clock_s:
            due.append(self._cancellations.popleft()[1])
        return due

    def next_arrival_s(self) -> float:
        """When the next request comes, inf when none does."""
        while self._arrivals and self._arrivals[0].id not in self._to_come:
            self._arrivals.popleft()
        return self._arrivals[0].arrival_s if self._arrivals else float("inf")

    def put_back(self, entry: Waiting) -> None:
        """A request waits, for the first time or because it had to give up its slot."""
        request, promises = entry.request, self.promises[entry.request.slo_class]
        age = (request.arrival_s, request.id)
        self._waiting[request.id] = entry
        self._queued[request.slo_class] += 1
        self._by_age[request.slo_class].push((entry.since_s, *age), entry)
        if entry.displaced:
            self._displaced.push(age, entry)
        else:
            self._in_order.push(self.order(entry, promises), entry)

    def withdraw(self, request_id: int) -> Request | None:
        """Take a request out that waits or has not come yet; None when there is none such."""
        entry = self._waiting.get(request_id)
        if entry is None:
            return self._to_come.pop(request_id, None)
        self._leave(entry)
        return entry.request

    def foremost(self, clock_s: float) -> Waiting:
        """The waiting request that is next; there must be one."""
        heads = (heap.first() for heap in (self._displaced, self._in_order, *self._by_age))
        waiting = [entry for entry in heads if entry is not None]
        return min(waiting, key=lambda entry: self._key(entry, clock_s))

    def key(self, request: Request, clock_s: float) -> Key:
        """Where a request that came at its arrival stands in the order, the smallest first."""
        return self._key(Waiting(request, request.arrival_s), clock_s)

    def key_if_put_back(self, request: Request, started: bool, clock_s: float) -> Key:
        """Where a running request would stand in the order if it had to wait from now on."""
        return self.order(
            Waiting(request, clock_s, started=started), self.promises[request.slo_class]
        )

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
            self._leave(entry)
            admitted.append((slot, entry.request))
        return admitted

    def queue_view(self, clock_s: float) -> tuple[Ints, Floats]:
        """Waiting requests and the oldest one's age, by class."""
        heads = (heap.first() for heap in self._by_age)
        oldest = [0.0 if head is None else max(clock_s - head.since_s, 0.0) for head in heads]
        return self._queued.copy(), np.array(oldest)

    def _leave(self, entry: Waiting) -> None:
        del self._waiting[entry.request.id]
        self._queued[entry.request.slo_class] -= 1

    def _key(self, entry: Waiting, clock_s: float) -> Key:
        promises = self.promises[entry.request.slo_class]
        return place(self.order, entry, promises, clock_s, self.most_age_s)
