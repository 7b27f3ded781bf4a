"""A structured log of tree choices: one JSON line a request and iteration, readable by machines.

It says how large a tree was drafted, what was kept of it and what came of it. It never holds prompt
text, output text or token ids: a line is made of `TreeChoice`, whose fields are all counts, times
and probabilities. Written and flushed as it happens, so that a killed process leaves whole lines.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from engine.errors import UserError
from engine.loop import Engine
from engine.protocol import Outcome, View
from engine.request import RequestRecord

FORMAT = "draftgym.tree-log"
VERSION = 1


class TreeChoice(NamedTuple):
    """One request in one iteration."""

    iteration: int
    start_s: float  # the iteration's start on the engine's clock
    request: int
    slo_class: str
    context_tokens: int
    tokens_out: int  # before the iteration, after the first
    slack_tokens: float | None  # None without an objective
    draft_confidence: float  # at the last root: what the controller knew
    drafted_depth: int
    drafted_width: int  # beam width: candidates at depth 1
    drafted: int
    kept_by_depth: list[int]  # verified nodes at depth 1, 2, …
    kept_probability: float  # sum of their path probabilities: accepted drafts as expected
    accepted_length: int  # the bonus token included
    let_through: int
    finished: bool


class TreeLog:
    """Observer that writes `TreeChoice` lines behind a line that names the format."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("w", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"--tree-log {path}: cannot be written ({error.strerror}); name a file in a folder "
                "that you may write to"
            ) from error
        header = {"format": FORMAT, "version": VERSION, "fields": TreeChoice._fields}
        self._file.write(json.dumps(header) + "\n")

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """One line for each request that decoded."""
        for slot in np.flatnonzero(outcome.ran).tolist():
            choice = tree_choice(engine, view, outcome, slot)
            self._file.write(json.dumps(choice._asdict(), allow_nan=False) + "\n")
        self._file.flush()

    def on_record(self, record: RequestRecord) -> None:
        """Ends of requests stand in the lines already."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def tree_choice(engine: Engine, view: View, outcome: Outcome, slot: int) -> TreeChoice:
    """What was chosen for a slot that decoded in the iteration that has just run."""
    trees = engine.trees
    size = int(outcome.drafted[slot])
    depth, kept = trees.depth[0, slot, :size], trees.kept[0, slot, :size]
    slack = float(view.slack_tokens[slot])
    return TreeChoice(
        iteration=engine.counters["iterations"],
        start_s=outcome.start_s,
        request=int(engine.slots.request[0, slot]),
        slo_class=engine.class_names[outcome.slo_class[slot]],
        context_tokens=int(view.context_tokens[slot]),
        tokens_out=int(view.tokens_out[slot]),
        slack_tokens=slack if math.isfinite(slack) else None,
        draft_confidence=float(view.draft_confidence[slot]),
        drafted_depth=int(depth.max(initial=0)),
        drafted_width=int((depth == 1).sum()),
        drafted=size,
        kept_by_depth=np.bincount(depth[kept])[1:].tolist(),
        kept_probability=float(trees.probability[0, slot, :size][kept].sum()),
        accepted_length=int(outcome.accepted_length[slot]),
        let_through=int(outcome.let_through[slot]),
        finished=bool(outcome.finished[slot]),
    )
