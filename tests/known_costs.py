"""A server whose passes take exactly what a rule says, on a clock set by hand.

The networks run, so texts and trees are real; only time is made up. What a profile finds and
predicts on it can be compared with the rule to the last digit.
"""

from __future__ import annotations

import numpy as np
import pytest

import engine.loop
from engine.backends.protocol import Children, Choices
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Floats, Limits
from engine.serving import LiveServer
from engine.state import SlotState, TreeState
from engine.tiny import tiny_decoder

HOST_S = 0.001
SMALL = Limits(slots=3, max_depth=6, max_width=8, max_nodes=31)


def small_server(limits: Limits = SMALL) -> LiveServer:
    """Two layers that draft with the lower of them, so that hundreds of steps take a second."""
    target, small = (tiny_decoder(0, 16, layers=layers) for layers in (2, 1))
    return LiveServer(target, small, None, limits, capacity_tokens=224, name="tiny")


class KnownCosts:
    """Stands between the engine and the server's backend; costs depend on counts alone."""

    def __init__(self, server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """`server` drafts with a model."""
        self.now_s = 0.0
        self.slow = 1.0
        """Factor on every pass from now on."""
        self.server, self.backend = server, server.backend
        monkeypatch.setattr(engine.loop, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(server, "backend", self)

    def __getattr__(self, name: str) -> object:
        return getattr(self.backend, name)

    def spend(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now_s += self.slow * seconds

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """By the chunk, what stands before it, and the first token."""
        start = int(slots.prefilled[0, slot])
        n, ends = end - start, end == slots.to_prefill[0, slot]
        self.spend(0.02 + 0.002 * n + 1e-4 * n * start + 0.01 * ends)
        return self.backend.prefill(slot, slots, end)

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """By the rows to catch up with."""
        done = self.server.drafter.rows.done  # type: ignore[attr-defined]
        before = np.maximum(done - 1, 0)  # the root of the latest draft is run, but no context
        behind = (slots.context[0] - before)[drafting[0]]
        self.spend(0.01 + 0.001 * float(behind.sum()))
        self.backend.draft_first(drafting, slots, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """By the beams' rows."""
        self.spend(0.02 + 0.0005 * float(beam.size.sum()))
        self.backend.draft_next(step, slots, trees, beam, children)

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """By nodes and roots, what is cached, and the requests; a jump behind 16 tokens."""
        requests = int(decoding.sum())
        tokens = requests + int(trees.kept[0].sum())
        kv = float((slots.context[0] * decoding[0]).sum())
        jump = 0.03 if tokens > 16 else 0.0
        self.spend(0.05 + 0.002 * tokens + 1e-4 * kv + 0.004 * requests + jump)
        self.backend.verify(decoding, margin, slots, trees, choices)

    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """What the engine's own work takes."""
        self.spend(HOST_S)
        self.backend.commit(decoding, slots, trees)
