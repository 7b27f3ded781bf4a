"""A queue of any length: the answers of a plain list, at a cost that does not grow with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.orders import OrderName, Promises, Waiting
from engine.request import Request
from engine.scheduler import Fits, Scheduler
from engine.waiting_heap import WaitingHeap
from tests.twins.plain_scheduler import PlainScheduler

INF = float("inf")
PROMISES = [
    Promises(priority=1, ttft_s=8.0, queue_age_s=24.0),
    Promises(priority=2, completion_s=40.0),
    Promises(priority=1, queue_age_s=16.0),
    Promises(),
]
ORDERS = get_args(OrderName)


def draw_requests(rng: np.random.Generator, count: int) -> list[Request]:
    """Requests of all classes; their times are eighths, so that ages are exact and ties common."""
    return [
        Request(i, int(rng.integers(len(PROMISES))), [1], 4, float(rng.integers(0, 400)) / 8)
        for i in rng.permutation(count).tolist()
    ]


def all_but(misfit: int) -> Fits:
    """Everybody fits but this request."""
    return lambda _, request: request.id != misfit


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.sampled_from(ORDERS))
def test_the_queue_is_that_of_a_plain_list(seed: int, order: OrderName) -> None:
    rng = np.random.default_rng(seed)
    requests = draw_requests(rng, int(rng.integers(1, 60)))
    queue = Scheduler(requests, len(PROMISES), order, PROMISES)
    plain = PlainScheduler(requests, order, PROMISES)
    running: list[Request] = []
    clock_s = 0.0
    for _ in range(60):
        clock_s += float(rng.integers(0, 16)) / 8
        assert queue.arrive(clock_s) == plain.arrive(clock_s)
        assert queue.next_arrival_s() == plain.next_arrival_s()
        if rng.random() < 0.2:
            queue.most_age_s = plain.most_age_s = float(rng.choice([4.0, 12.0, INF]))
        if rng.random() < 0.2:
            gone = int(rng.integers(len(requests)))
            assert queue.withdraw(gone) is plain.withdraw(gone)
        while running and rng.random() < 0.4:
            back = running.pop(int(rng.integers(len(running))))
            displaced, started = (rng.random(2) < 0.5).tolist()
            for one in (queue, plain):
                one.put_back(Waiting(back, clock_s, displaced, started))
        if plain.waiting:
            assert queue.foremost(clock_s) == plain.foremost(clock_s)
        free, most = list(range(int(rng.integers(0, 4)))), int(rng.integers(0, 4))
        fits = all_but(int(rng.integers(3 * len(requests))))
        answers = [one.admit(free, 1, most, clock_s, fits) for one in (queue, plain)]
        assert answers[0] == answers[1]
        running += [request for _, request in answers[0]]
        assert list(queue.waiting) == plain.waiting
        queued, oldest_s = queue.queue_view(clock_s)
        assert (queued.tolist(), oldest_s.tolist()) == plain.queue_view(clock_s)


def test_keys_of_all_orders_are_as_they_would_be_put_back() -> None:
    for order in ORDERS:
        queue = Scheduler([], len(PROMISES), order, PROMISES)
        for request in draw_requests(np.random.default_rng(0), 30):
            queue.put_back(Waiting(request, 60.0, started=request.id % 2 == 0))
        keys = {
            entry.request.id: queue.key_if_put_back(entry.request, entry.started, 60.0)
            for entry in queue.waiting
        }
        served = [queue.admit([0], 0, 1, 60.0)[0][1].id for _ in range(30)]
        assert served == sorted(keys, key=lambda request_id: keys[request_id])


# -- cost ------------------------------------------------------------------------------------------


def lines_run(work: Callable[[], Any]) -> int:
    """Lines of Python that `work` executes."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("order", ORDERS)
def test_a_step_costs_the_same_with_ten_thousand_in_the_queue(order: OrderName) -> None:
    def step(waiting: int) -> int:
        requests = draw_requests(np.random.default_rng(0), waiting)
        newcomer = Request(waiting, 0, [1], 4, 60.0)
        queue = Scheduler([*requests, newcomer], len(PROMISES), order, PROMISES)
        queue.arrive(50.0)

        def one() -> None:
            queue.arrive(60.0)
            queue.withdraw(waiting // 2)
            ((_, request),) = queue.admit([0], 3, 4, 60.0)
            queue.queue_view(60.0)
            queue.put_back(Waiting(request, 60.0, started=True))

        return lines_run(one)

    assert step(10_000) <= step(100) + 20


def test_those_who_left_do_not_stay_in_a_heap() -> None:
    waiting: dict[int, Waiting] = {}
    heap = WaitingHeap(waiting)
    first = Waiting(Request(0, 0, [1], 4, 0.0), 0.0)
    waiting[0] = first
    heap.push((0.0,), first)  # it stays on top, so that nobody else is dropped there
    for i in range(1, 5000):
        entry = Waiting(Request(i, 0, [1], 4, 0.0), 0.0)
        waiting[i] = entry
        heap.push((float(i),), entry)
        del waiting[i]
    assert heap.first() is first
    assert len(heap._heap) < 100
    del waiting[0]
    assert heap.first() is None
