"""What a controller remembers of each request: kept under its id, forgotten when it has ended.

Memories are rows of arrays, one row a slot, so that kernels can read and write those of a whole
batch at once. Slots change hands and a preempted request may return in another one, so neither slot
nor time says whose memory it is. An outcome tells who finished. Who was cancelled, or failed, just
never comes back: what belongs to a request that has not decoded for `PATIENCE` plans is dropped as
well.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from engine.protocol import Bools, Ints, Outcome, View

PATIENCE = 1000  # plans
NOBODY = -(2**63)  # no request has that id
Rows = TypeVar("Rows", bound=tuple[Any, ...])
"""A NamedTuple of arrays [S, …]."""


class PerRequest(Generic[Rows]):
    """Memories by request."""

    def __init__(self, rows: Rows) -> None:
        """Remembers nothing; `rows` are arrays [S, …] of the kinds and sizes that it takes."""
        self.rows = rows
        """By slot, of the requests that decode under the latest plan; else they mean nothing."""
        self._ids: Ints = np.full(len(rows[0]), NOBODY)  # of these requests
        self._away: dict[int, tuple[list[Any], int]] = {}
        """Of those who do not decode, with the plan that saw them last, in that order."""
        self._plans = 0

    def __len__(self) -> int:
        """Requests that are remembered."""
        return int(self.here().sum()) + len(self._away)

    def here(self) -> Bools:
        """Slots [S] whose rows are somebody's."""
        return self._ids != NOBODY

    def recall(self, view: View, new: tuple[Any, ...]) -> Rows:
        """The memory of every request that decodes; `new`, a row, for one that is not known."""
        if len(self._ids) != len(view.active):
            self._resize(len(view.active))
        self._plans += 1
        ids = np.where(view.active, view.request, NOBODY)
        # Few slots change hands from plan to plan. All leave first: somebody may change places.
        changed = (ids != self._ids).nonzero()[0].tolist()
        for slot in changed:
            if self._ids[slot] != NOBODY:
                row = [field[slot].copy() for field in self.rows]
                self._away[int(self._ids[slot])] = row, self._plans - 1
        for slot in changed:
            if ids[slot] != NOBODY:
                found, _ = self._away.pop(int(ids[slot]), (new, 0))
                for field, value in zip(self.rows, found, strict=True):
                    field[slot] = value
        self._ids = ids
        while self._plans - next(iter(self._away.values()), (None, self._plans))[1] > PATIENCE:
            del self._away[next(iter(self._away))]
        return self.rows

    def forget(self, outcome: Outcome) -> None:
        """Drop the memories of those who finished."""
        self._ids[outcome.finished.nonzero()[0]] = NOBODY

    def _resize(self, slots: int) -> None:
        """Room for so many slots, with nobody in them."""
        fields = (np.zeros((slots, *field.shape[1:]), field.dtype) for field in self.rows)
        self.rows = type(self.rows)(*fields)
        self._ids = np.full(slots, NOBODY)
