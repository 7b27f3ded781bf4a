"""Seconds spent inside the networks, taken at their doors and without changing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from engine.serving import LiveServer

DOORS = {"decoder": ("forward", "logits"), "head": ("forward", "logits", "combine")}


class NetworkClock:
    """Adds up the time of calls; `take` reads it and starts anew."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def take(self) -> float:
        """Seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._seconds += perf_counter() - begun

        return timed


@contextmanager
def network_clock(server: LiveServer) -> Iterator[NetworkClock]:
    """Within: every pass of the server's target and head is timed."""
    clock = NetworkClock()
    doors = [
        (network, name)
        for owner, names in DOORS.items()
        if (network := getattr(server, owner)) is not None  # prompt lookup has none
        for name in names
        if hasattr(network, name)
    ]
    try:
        for network, name in doors:
            # on the instance, in front of the class's own method
            setattr(network, name, clock.around(getattr(network, name)))
        yield clock
    finally:
        for network, name in doors:
            vars(network).pop(name, None)
