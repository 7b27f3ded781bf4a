"""Admission: who is next under each order, into the lowest slots, never more than may run."""

from __future__ import annotations

import pytest

from engine.orders import OrderName, Promises, Waiting, deadline_s
from engine.request import Request
from engine.scheduler import Scheduler


def arriving(*arrivals: float, classes: int = 2) -> Scheduler:
    """A scheduler of requests that arrive then, numbered in the order given."""
    requests = [Request(i, i % classes, [1], 4, at) for i, at in enumerate(arrivals)]
    return Scheduler(requests, classes)


def test_requests_wait_in_order_of_arrival() -> None:
    scheduler = arriving(3.0, 1.0, 2.0, 1.0)
    assert scheduler.next_arrival_s() == 1.0
    scheduler.arrive(2.5)
    assert [w.request.id for w in scheduler.waiting] == [1, 3, 2]
    assert scheduler.next_arrival_s() == 3.0
    scheduler.arrive(3.0)  # an arrival at this very moment counts
    assert [w.request.id for w in scheduler.waiting] == [1, 3, 2, 0]
    assert scheduler.next_arrival_s() == float("inf")


@pytest.mark.parametrize(
    ("free", "running", "most", "given"),
    [
        ([0, 2, 5], 3, 16, [(0, 0), (2, 1), (5, 2)]),  # as many as there are slots
        ([0, 2, 5], 3, 4, [(0, 0)]),  # as many as may run
        ([0, 2, 5], 3, 3, []),
        ([0, 2, 5], 3, 1, []),  # a plan that lowers the number evicts nobody
        ([0, 1], 0, 0, [(0, 0)]),  # one may always run, or nothing would ever end
        ([], 8, 16, []),
    ],
)
def test_admission(free: list[int], running: int, most: int, given: list[tuple[int, int]]) -> None:
    scheduler = arriving(0.0, 0.0, 0.0, 0.0)
    scheduler.arrive(0.0)
    admitted = scheduler.admit(free, running, most)
    assert [(slot, request.id) for slot, request in admitted] == given
    assert len(scheduler.waiting) == 4 - len(given)


def test_no_more_are_admitted_than_wait() -> None:
    scheduler = arriving(0.0, 9.0)
    scheduler.arrive(1.0)
    assert len(scheduler.admit([0, 1, 2], 0, 16)) == 1
    assert scheduler.admit([1, 2], 1, 16) == []


def test_the_queue_is_seen_by_class() -> None:
    scheduler = arriving(1.0, 2.0, 2.5, 9.0, classes=3)  # classes 0, 1, 2, 0
    scheduler.arrive(4.0)
    queued, oldest_s = scheduler.queue_view(4.0)
    assert queued.tolist() == [1, 1, 1]
    assert oldest_s.tolist() == [3.0, 2.0, 1.5]
    scheduler.admit([0], 0, 16)
    queued, oldest_s = scheduler.queue_view(5.0)
    assert queued.tolist() == [0, 1, 1]
    assert oldest_s.tolist() == [0.0, 3.0, 2.5]


# -- orders ---------------------------------------------------------------------------------------

INF = float("inf")


def queue_of(
    order: OrderName, promises: list[Promises], *arrivals: float, clock_s: float = 10.0
) -> Scheduler:
    """A scheduler with request i of class i in its queue."""
    requests = [Request(i, i, [1], 4, at) for i, at in enumerate(arrivals)]
    scheduler = Scheduler(requests, len(promises), order, promises)
    scheduler.arrive(clock_s)
    return scheduler


def served(scheduler: Scheduler, clock_s: float = 10.0) -> list[int]:
    """Ids in the order in which a single slot takes them."""
    ids = []
    while scheduler.waiting:
        ((_, request),) = scheduler.admit([0], 0, 1, clock_s)
        ids.append(request.id)
    return ids


PROMISES = [
    Promises(priority=0, ttft_s=9.0),
    Promises(priority=2, completion_s=50.0),
    Promises(priority=1),
    Promises(priority=2, ttft_s=3.0, completion_s=20.0),
]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("priority", [1, 3, 2, 0]),  # by age within the priority 2
        ("edf", [3, 0, 1, 2]),  # due at 7, 9, 51 and never
    ],
)
def test_each_order_serves_its_own_way(order: OrderName, wanted: list[int]) -> None:
    assert served(queue_of(order, PROMISES, 0.0, 1.0, 2.0, 4.0)) == wanted


def test_a_started_request_has_no_first_token_to_be_due() -> None:
    entry = Waiting(Request(0, 0, [1], 4, 1.0), since_s=5.0)
    promises = Promises(ttft_s=2.0, completion_s=30.0, queue_age_s=7.0)
    assert deadline_s(entry, promises) == 3.0
    assert deadline_s(entry._replace(started=True), promises) == 12.0
    assert deadline_s(entry._replace(started=True), Promises(ttft_s=2.0)) == INF


@pytest.mark.parametrize("order", ["fcfs", "priority", "edf"])
def test_queue_age_lifts_over_every_order(order: OrderName) -> None:
    first = Promises(priority=9, ttft_s=0.1)
    arrivals = (0.0, 1.0, 2.0)
    aged = [first, first, Promises(queue_age_s=16.0)]
    assert served(queue_of(order, aged, *arrivals)) == [2, 0, 1]  # half of it is over at 10
    assert served(queue_of(order, aged, *arrivals), clock_s=9.5) == [0, 1, 2]
    without = [first, first, Promises()]
    assert served(queue_of(order, without, *arrivals)) == [0, 1, 2]


def test_the_most_age_lifts_whoever_promises_nothing() -> None:
    scheduler = queue_of("priority", PROMISES[:3], 0.0, 1.0, 2.0)
    scheduler.most_age_s = 9.0
    assert served(scheduler) == [0, 1, 2]  # without it 1, 2, 0


def test_what_was_displaced_comes_back_first() -> None:
    scheduler = queue_of("edf", PROMISES, 0.0, 1.0, 2.0, 4.0)
    late = Request(9, 2, [1], 4, 8.0)
    scheduler.put_back(Waiting(late, 10.0, displaced=True, started=True))
    assert served(scheduler) == [9, 3, 0, 1, 2]
    scheduler = queue_of("edf", PROMISES, 0.0, 1.0, 2.0, 4.0)
    scheduler.put_back(Waiting(late, 10.0, started=True))
    assert served(scheduler) == [3, 0, 1, 2, 9]


def test_who_does_not_fit_is_not_overtaken() -> None:
    scheduler = arriving(0.0, 1.0, 2.0)
    scheduler.arrive(5.0)
    admitted = scheduler.admit([0, 1, 2], 0, 16, 5.0, lambda slot, request: request.id != 1)
    assert [(slot, request.id) for slot, request in admitted] == [(0, 0)]
    assert [w.request.id for w in scheduler.waiting] == [1, 2]


def test_withdrawal_and_cancellation_times() -> None:
    requests = [
        Request(i, 0, [1], 4, at, cancel_at_s=left)
        for i, (at, left) in enumerate([(0.0, 7.0), (1.0, None), (9.0, 2.0)])
    ]
    scheduler = Scheduler(requests, 1)
    scheduler.arrive(5.0)
    assert scheduler.cancellations(1.9) == []
    assert scheduler.cancellations(7.0) == [2, 0]
    assert scheduler.cancellations(7.0) == []  # told once
    assert scheduler.withdraw(2) is requests[2]  # before it came
    assert scheduler.withdraw(0) is requests[0]
    assert scheduler.withdraw(0) is None
    assert [w.request.id for w in scheduler.waiting] == [1]
    assert scheduler.next_arrival_s() == INF
