"""What an engine held and drew from iteration to iteration: an observer for memory and power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import Outcome, View
from engine.request import RequestRecord

if TYPE_CHECKING:
    from engine.loop import Engine


class Resources:
    """Cached tokens, the process's memory and watts, iteration by iteration."""

    def __init__(self) -> None:
        self.watts: list[float] = []
        self.kv_tokens: list[int] = []
        self.memory_bytes = 0

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Note an iteration; a pass without length drew nothing that could be told."""
        if outcome.iteration_s > 0:
            self.watts.append(outcome.energy_joules / outcome.iteration_s)
        self.kv_tokens.append(view.kv_total_tokens - view.kv_free_tokens)
        self.memory_bytes = max(self.memory_bytes, outcome.memory_bytes)

    def on_record(self, record: RequestRecord) -> None:
        """Requests are `eval.metrics`'."""

    def close(self) -> None:
        """Nothing is written."""
