"""A heap of waiting requests by a key that never changes, out of which they leave unannounced.

A request stands in several heaps at once and gets its slot by one of them. It is not searched for
in the others: an entry that no longer waits is dropped when it comes to the top, or when such
entries are the greater part of the heap. So every operation costs O(log n), averaged over many.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from engine.orders import Key, Waiting


class WaitingHeap:
    """The smallest key first, among the entries that `waiting` still holds."""

    def __init__(self, waiting: Mapping[int, Waiting]) -> None:
        """`waiting` by request id: the very entry pushed here while it waits."""
        self._waiting = waiting
        self._heap: list[tuple[Key, int, Waiting]] = []
        self._pushed = 0  # entries of equal keys are never compared with each other

    def push(self, key: Key, entry: Waiting) -> None:
        """Add an entry that waits."""
        if len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = [item for item in self._heap if self._waits(item[2])]
            heapq.heapify(self._heap)
        self._pushed += 1
        heapq.heappush(self._heap, (key, self._pushed, entry))

    def first(self) -> Waiting | None:
        """The entry with the smallest key; None when none waits."""
        while self._heap:
            entry = self._heap[0][2]
            if self._waits(entry):
                return entry
            heapq.heappop(self._heap)
        return None

    def _waits(self, entry: Waiting) -> bool:
        return self._waiting.get(entry.request.id) is entry
