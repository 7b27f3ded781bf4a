"""What a controller remembers of each request: kept under its id, forgotten when it has ended.

Slots change hands and a preempted request may return in another one, so neither slot nor time says
whose memory it is. An outcome tells who finished. Who was cancelled, or failed, just never comes
back: what belongs to a request that has not decoded for `PATIENCE` plans is dropped as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from engine.protocol import Outcome, View

PATIENCE = 1000  # plans
Memory = TypeVar("Memory")


class PerRequest(Generic[Memory]):
    """Memories by request."""

    def __init__(self) -> None:
        """Remembers nothing."""
        self.by_slot: dict[int, Memory] = {}
        """Of the requests that decode under the latest plan."""
        self._ids: dict[int, int] = {}
        self._known: dict[int, tuple[Memory, int]] = {}  # with the plan that saw it last, in order
        self._plans = 0

    def __len__(self) -> int:
        """Requests that are remembered."""
        return len(self._known)

    def recall(self, view: View, new: Callable[[], Memory]) -> dict[int, Memory]:
        """By slot, the memory of every request that decodes; `new()` of one that is not known."""
        self._plans += 1
        slots = np.flatnonzero(view.active)
        self._ids = dict(zip(slots.tolist(), view.request[slots].tolist(), strict=True))
        self.by_slot = {}
        for slot, request in self._ids.items():
            found = self._known.pop(request, None)
            memory = new() if found is None else found[0]
            self._known[request] = memory, self._plans  # at the end: seen last
            self.by_slot[slot] = memory
        while self._plans - next(iter(self._known.values()), (None, self._plans))[1] > PATIENCE:
            del self._known[next(iter(self._known))]
        return self.by_slot

    def forget(self, outcome: Outcome) -> None:
        """Drop the memories of those who finished."""
        for slot in np.flatnonzero(outcome.finished).tolist():
            self.by_slot.pop(slot, None)
            self._known.pop(self._ids.pop(slot, -1), None)
