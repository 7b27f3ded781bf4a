"""Admission: first come, first served, into the lowest slots, never more than may run."""

from __future__ import annotations

import pytest

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
    assert [r.id for r in scheduler.waiting] == [1, 3, 2]
    assert scheduler.next_arrival_s() == 3.0
    scheduler.arrive(3.0)  # an arrival at this very moment counts
    assert [r.id for r in scheduler.waiting] == [1, 3, 2, 0]
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
