"""Who of the waiting requests is next: first come, class priority, or earliest deadline.

An order is a pure function from a waiting request and its class's promises to a sort key, the
smallest first. `place` puts above every order what keeps anybody from starving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from engine.classes import ClassTable
from engine.request import Request

OrderName = Literal["fcfs", "priority", "edf"]
Key = tuple[float, ...]

LIFT_AT = 0.5
"""Share of the largest queue age after which a request goes first (ours): what is lifted only when
the objective is missed already comes too late."""


class Promises(NamedTuple):
    """What a class was promised, in seconds; inf where nothing was."""

    priority: int = 0
    ttft_s: float = float("inf")
    completion_s: float = float("inf")
    queue_age_s: float = float("inf")


class Waiting(NamedTuple):
    """A request without a slot."""

    request: Request
    since_s: float  # arrival, or when it had to give its slot up
    displaced: bool = False  # gave its slot up for want of memory: goes before everybody
    started: bool = False  # has emitted its first token


def promises_of(classes: ClassTable, unloaded_tpot_s: float) -> list[Promises]:
    """By class, in seconds of this machine."""
    return [
        Promises(
            c.priority,
            c.ttft_ratio * unloaded_tpot_s,
            c.completion_ratio * unloaded_tpot_s,
            c.queue_age_ratio * unloaded_tpot_s,
        )
        for c in classes.classes
    ]


def fcfs(entry: Waiting, promises: Promises) -> Key:
    """First come, first served."""
    return (entry.request.arrival_s, entry.request.id)


def priority(entry: Waiting, promises: Promises) -> Key:
    """The class of higher priority first, within a class the older request."""
    return (-promises.priority, entry.request.arrival_s, entry.request.id)


def edf(entry: Waiting, promises: Promises) -> Key:
    """The earliest deadline first; without a deadline last, by age."""
    return (deadline_s(entry, promises), entry.request.arrival_s, entry.request.id)


def deadline_s(entry: Waiting, promises: Promises) -> float:
    """When the first of a request's objectives is missed; inf without any.

    A TPOT objective sets none: its time starts with the first token.
    """
    arrival_s = entry.request.arrival_s
    due_s = min(arrival_s + promises.completion_s, entry.since_s + promises.queue_age_s)
    return due_s if entry.started else min(due_s, arrival_s + promises.ttft_s)


ORDERS: dict[OrderName, Callable[[Waiting, Promises], Key]] = {
    "fcfs": fcfs,
    "priority": priority,
    "edf": edf,
}


def place(
    order: Callable[[Waiting, Promises], Key],
    entry: Waiting,
    promises: Promises,
    clock_s: float,
    most_age_s: float = float("inf"),
) -> Key:
    """The key under `order`, below it what was displaced and what has waited for too long.

    Too long is LIFT_AT of the class's largest queue age, or `most_age_s` whatever the class; of
    those lifted, the one whose limit comes first.
    """
    if entry.displaced:
        return (0.0, entry.request.arrival_s, entry.request.id)
    limit_s = min(LIFT_AT * promises.queue_age_s, most_age_s)
    if clock_s - entry.since_s >= limit_s:
        return (1.0, entry.since_s + limit_s, entry.request.arrival_s, entry.request.id)
    return (2.0, *order(entry, promises))
