"""What of each request's drafts the target accepted, position by position.

"Not proposed" is not "rejected": both are counted by position (ALGORITHMS.md §10). Properties carry
the names of SGLang's per-response figures (its PR #11144) where the meaning is the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.atomic_write import write_named
from engine.loop import Engine
from engine.protocol import Outcome, View
from engine.request import RequestRecord


@dataclass
class RequestAcceptance:
    """One request's drafts; lists by position start at the root's children."""

    request: int
    slo_class: str
    proposed: list[int]
    """How often each position was offered to the target."""
    accepted: list[int]
    """How often it was accepted."""
    spec_num_proposed_drafts: int = 0
    """Nodes verified, roots not counted; in a tree, siblings count too."""
    spec_correct_drafts_histogram: list[int] = field(default_factory=list)
    """Verifications by how many drafts they accepted: entry 0 counts those that accepted none."""
    let_through: int = 0
    """Accepted by the margin rule, not chosen by the target."""

    @property
    def spec_verify_ct(self) -> int:
        """Iterations in which drafts were verified."""
        return sum(self.spec_correct_drafts_histogram)

    @property
    def spec_num_correct_drafts(self) -> int:
        """Drafts accepted."""
        return sum(self.accepted)

    @property
    def spec_accept_rate(self) -> float:
        """Accepted drafts over proposed ones; 0 where none was proposed."""
        return self.spec_num_correct_drafts / max(self.spec_num_proposed_drafts, 1)

    @property
    def spec_accept_length(self) -> float:
        """Mean tokens a verification, the target's own included; 0 where none took place."""
        verifications = self.spec_verify_ct
        return 1 + self.spec_num_correct_drafts / verifications if verifications else 0.0

    def as_row(self) -> dict[str, object]:
        """Fields and properties, for JSON."""
        derived = ("spec_verify_ct", "spec_num_correct_drafts", "spec_accept_rate")
        return vars(self) | {name: getattr(self, name) for name in (*derived, "spec_accept_length")}


class AcceptanceByRequest:
    """Observer that keeps a `RequestAcceptance` for every request; `close` writes them as JSONL."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.running: dict[int, RequestAcceptance] = {}
        self.ended: list[RequestAcceptance] = []

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Add the iteration's verdicts."""
        for slot in np.flatnonzero(outcome.ran & (outcome.verified > 1)).tolist():
            slo_class = engine.class_names[outcome.slo_class[slot]]
            one = self._of(int(engine.slots.request[0, slot]), slo_class, outcome.proposed.shape[1])
            for depth in np.flatnonzero(outcome.proposed[slot]).tolist():
                one.proposed[depth] += 1
            accepted = np.flatnonzero(outcome.accepted[slot]).tolist()
            for depth in accepted:
                one.accepted[depth] += 1
            one.spec_correct_drafts_histogram[len(accepted)] += 1
            one.spec_num_proposed_drafts += int(outcome.verified[slot]) - 1
            one.let_through += int(outcome.let_through[slot])

    def _of(self, request: int, slo_class: str, depths: int) -> RequestAcceptance:
        if request not in self.running:
            self.running[request] = RequestAcceptance(
                request,
                slo_class,
                proposed=[0] * depths,
                accepted=[0] * depths,
                spec_correct_drafts_histogram=[0] * (depths + 1),
            )
        return self.running[request]

    def on_record(self, record: RequestRecord) -> None:
        """The request is over; one that never speculated leaves nothing."""
        if (one := self.running.pop(record.id, None)) is not None:
            self.ended.append(one)

    def close(self) -> None:
        """Write one line a request, in the order in which they ended."""
        if self.path is not None:
            rows = [json.dumps(one.as_row()) + "\n" for one in self.ended]
            write_named(self.path, "".join(rows))
