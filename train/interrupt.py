"""Ctrl-C and SIGTERM: once asks for a clean stop, twice stops now."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context in which the first signal only sets `requested`; the loop inside looks at it."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self.handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def handle(self, number: int, frame: FrameType | None) -> None:
        """What a signal does: ask first, then break off."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nstopping as soon as all is saved; again to stop now", file=sys.stderr, flush=True)
