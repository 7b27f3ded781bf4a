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
NOBODY = -(2**63)  # no request has that id
Memory = TypeVar("Memory")


class PerRequest(Generic[Memory]):
    """Memories by request."""

    def __init__(self) -> None:
        """Remembers nothing."""
        self.by_slot: dict[int, Memory] = {}
        """Of the requests that decode under the latest plan; in no order."""
        self._ids = np.zeros(0, np.int64)  # [S] of these requests, NOBODY where none decodes
        self._away: dict[int, tuple[Memory, int]] = {}
        """Of those who do not decode, with the plan that saw them last, in that order."""
        self._plans = 0

    def __len__(self) -> int:
        """Requests that are remembered."""
        return len(self.by_slot) + len(self._away)

    def recall(self, view: View, new: Callable[[], Memory]) -> dict[int, Memory]:
        """By slot, the memory of every request that decodes; `new()` of one that is not known."""
        if len(self._ids) != len(view.active):
            self._ids = np.full(len(view.active), NOBODY)
            self.by_slot.clear()
        self._plans += 1
        ids = np.where(view.active, view.request, NOBODY)
        # Few slots change hands from plan to plan. All leave first: somebody may change places.
        changed = np.flatnonzero(ids != self._ids).tolist()
        for slot in changed:
            if slot in self.by_slot:
                self._away[int(self._ids[slot])] = self.by_slot.pop(slot), self._plans - 1
        for slot in changed:
            if ids[slot] != NOBODY:
                found = self._away.pop(int(ids[slot]), None)
                self.by_slot[slot] = new() if found is None else found[0]
        self._ids = ids
        while self._plans - next(iter(self._away.values()), (None, self._plans))[1] > PATIENCE:
            del self._away[next(iter(self._away))]
        return self.by_slot

    def forget(self, outcome: Outcome) -> None:
        """Drop the memories of those who finished."""
        for slot in np.flatnonzero(outcome.finished).tolist():
            if slot in self.by_slot:
                del self.by_slot[slot]
                self._ids[slot] = NOBODY
