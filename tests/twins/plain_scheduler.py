"""The queue as a plain list that is looked through for everything: `engine.scheduler`'s twin."""

from __future__ import annotations

from collections.abc import Sequence

from engine.orders import ORDERS, OrderName, Promises, Waiting, place
from engine.request import Request
from engine.scheduler import Fits


class PlainScheduler:
    """The same answers as `Scheduler`, at the cost of the whole queue each time."""

    def __init__(
        self, requests: Sequence[Request], order: OrderName, promises: Sequence[Promises]
    ) -> None:
        self.future = sorted(requests, key=lambda r: (r.arrival_s, r.id))
        self.waiting: list[Waiting] = []
        self.order, self.promises = ORDERS[order], promises
        self.most_age_s = float("inf")

    def arrive(self, clock_s: float) -> list[Request]:
        """The newcomers."""
        newcomers = [r for r in self.future if r.arrival_s <= clock_s]
        self.future = [r for r in self.future if r.arrival_s > clock_s]
        self.waiting += [Waiting(r, r.arrival_s) for r in newcomers]
        return newcomers

    def next_arrival_s(self) -> float:
        """When the next request comes."""
        return min((r.arrival_s for r in self.future), default=float("inf"))

    def put_back(self, entry: Waiting) -> None:
        """A request waits again."""
        self.waiting.append(entry)

    def withdraw(self, request_id: int) -> Request | None:
        """Take a request out that waits or has not come yet."""
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
        """The waiting request that is next."""

        def key(entry: Waiting) -> tuple[float, ...]:
            promises = self.promises[entry.request.slo_class]
            return place(self.order, entry, promises, clock_s, self.most_age_s)

        return min(self.waiting, key=key)

    def admit(
        self, free: Sequence[int], running: int, most: int, clock_s: float, fits: Fits
    ) -> list[tuple[int, Request]]:
        """Pairs of slot and request, until one does not fit."""
        admitted: list[tuple[int, Request]] = []
        for slot in free[: max(min(len(free), max(most, 1) - running, len(self.waiting)), 0)]:
            entry = self.foremost(clock_s)
            if not fits(slot, entry.request):
                break
            self.waiting.remove(entry)
            admitted.append((slot, entry.request))
        return admitted

    def queue_view(self, clock_s: float) -> tuple[list[int], list[float]]:
        """Waiting requests and the oldest one's age, by class."""
        queued, oldest = [0] * len(self.promises), [0.0] * len(self.promises)
        for entry in self.waiting:
            slo_class = entry.request.slo_class
            queued[slo_class] += 1
            oldest[slo_class] = max(oldest[slo_class], clock_s - entry.since_s)
        return queued, oldest
