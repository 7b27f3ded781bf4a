"""What an observer is, and the drive that tells observers what the engine does.

The loop knows no observer: `serve_observed` calls its two steps and passes on what came of them,
between iterations, where the engine's clock stands still.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from engine.loop import Engine
from engine.protocol import Controller, Outcome, View
from engine.request import RequestRecord


class Observer(Protocol):
    """Looks on; it must not change what it is shown."""

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """An iteration is over: the controller decided on `view`, and `outcome` is what it brought.

        The engine's arrays still hold the iteration's trees, and in slots whose request has ended
        the values that it ended with.
        """
        ...

    def on_record(self, record: RequestRecord) -> None:
        """A request has ended, or the episode was cut while it ran or waited."""
        ...

    def close(self) -> None:
        """No more will come: write what is to be written."""
        ...


def serve_observed(
    engine: Engine,
    controller: Controller,
    observers: Iterable[Observer] = (),
    max_iterations: int | None = None,
) -> list[RequestRecord]:
    """`Engine.serve` with observers: serve the whole trace; records of all requests.

    Observers are not closed, so that several episodes can go into the same files.
    """
    watching = tuple(observers)

    def tell(records: list[RequestRecord]) -> int:
        for record in records:
            for observer in watching:
                observer.on_record(record)
        return len(records)

    controller.reset(engine.limits)
    told = 0
    while max_iterations is None or engine.counters["iterations"] < max_iterations:
        view = engine.next_decision()
        if view is None:
            break
        outcome = engine.run_iteration(view, controller)
        for observer in watching:
            observer.on_iteration(engine, view, outcome)
        told += tell(engine.records()[told:])
    records = engine.close_records()
    tell(records[told:])
    return records
