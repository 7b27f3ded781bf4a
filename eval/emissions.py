"""When each request's tokens left the engine, and what was drafted for it in vain.

The ledger keeps sums; inter-token latency and waste by class need every iteration. What is made of
them is defined in `eval.metrics`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.protocol import Outcome, View
from engine.request import RequestRecord, Status

if TYPE_CHECKING:
    from engine.loop import Engine


def emitted_at_s(outcome: Outcome) -> float:
    """When an iteration's tokens left the engine: at its end, on the engine's clock."""
    return outcome.start_s + outcome.iteration_s


class Emissions:
    """An observer that notes by request the time between emissions, and its wasted nodes."""

    def __init__(self) -> None:
        self._last_s: dict[int, float] = {}
        self._gaps_s: defaultdict[int, list[float]] = defaultdict(list)
        self._wasted: defaultdict[int, int] = defaultdict(int)

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """One gap for every request that decoded, from its last emission to this one."""
        now_s = emitted_at_s(outcome)
        for slot in np.flatnonzero(outcome.ran).tolist():
            request = int(view.request[slot])
            # The prompt's last pass emitted the first token.
            last_s = self._last_s.get(request, float(engine.slots.first_token_s[0, slot]))
            self._gaps_s[request].append(now_s - last_s)
            self._last_s[request] = now_s
            self._wasted[request] += int(outcome.wasted[slot])

    def on_record(self, record: RequestRecord) -> None:
        """Records are completed when all are there."""

    def close(self) -> None:
        """Nothing is written."""

    def completed(self, records: Sequence[RequestRecord]) -> list[RequestRecord]:
        """The records with `gaps_s` and `wasted_nodes` filled in."""
        return [
            r._replace(gaps_s=tuple(self._gaps(r)), wasted_nodes=self._wasted.get(r.id, 0))
            for r in records
        ]

    def _gaps(self, record: RequestRecord) -> list[float]:
        """The gaps, and of a request that was cut its wait for the next token if it is the longest.

        Leaving that out would flatter a controller that lets a request starve; a shorter one says
        nothing yet.
        """
        gaps_s = self._gaps_s.get(record.id, [])
        if record.status is not Status.UNFINISHED or record.output_tokens == 0:
            return gaps_s
        waited_s = record.finish_s - self._last_s.get(record.id, record.first_token_s)
        return [*gaps_s, waited_s] if waited_s > max(gaps_s, default=0.0) else gaps_s
