"""The steps of the engine as a Chrome trace, to be opened in chrome://tracing or ui.perfetto.dev.

One lane for each kind of work, one span a request, counters for load. Times are those of the
engine's clock. An iteration reports how long each kind of work took in it, not when: within an
iteration the spans stand one after another in the loop's order. That is exact up to two things:
admission and commit, both under "other", are drawn together at the end, and what a controller took
between draft steps is drawn before them.

Format: "Trace Event Format" (Chromium), complete (X), counter (C), async (b, e), metadata (M).
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, TextIO

from engine.errors import UserError
from engine.loop import Engine
from engine.protocol import Outcome, View
from engine.request import RequestRecord

LANES = ("prefill", "controller", "draft", "select", "verify", "other")
REQUEST_PHASES = (
    ("queued", "arrival_s", "admitted_s"),
    ("prefill", "admitted_s", "first_token_s"),
    ("decode", "first_token_s", "finish_s"),
)


class StepTrace:
    """Observer that writes a trace file, events as they come; `close` puts it in place.

    Until then they stand in `.NAME.partial` beside it, which viewers read too, should the process
    die. Every episode is a process of its own in the trace, since its clock starts anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(f".{path.name}.partial")
        self._engine: Engine | None = None
        self._episode = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = self.partial.open("w", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"--trace-out {path}: cannot be written ({error.strerror}); name a file in a "
                "folder that you may write to"
            ) from error
        self._file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        self._separator = ""

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Spans of the iteration's work and the counters at its start."""
        if engine is not self._engine:
            self._begin_episode(engine)
        arguments = {
            "iteration": engine.counters["iterations"],
            "requests": int(outcome.ran.sum()),
            "drafted": int(outcome.drafted.sum()),
            "verified": int(outcome.verified.sum()),
            "emitted": int(outcome.accepted_length.sum()),
        }
        at_s = outcome.start_s
        for lane, name in enumerate(LANES):
            spent_s = getattr(outcome, f"{name}_s")
            if spent_s > 0:
                self._write("X", name, at_s, tid=lane, dur=1e6 * spent_s, args=arguments)
            at_s += spent_s
        waiting = {name: int(n) for name, n in zip(view.class_names, view.queued, strict=True)}
        decoding = {"decoding": int(view.active.sum()), "prefilling": view.prefilling}
        self._write("C", "running", outcome.start_s, args=decoding)
        self._write("C", "waiting", outcome.start_s, args=waiting)
        used = view.kv_total_tokens - view.kv_free_tokens
        self._write("C", "KV tokens", outcome.start_s, args={"used": used})

    def on_record(self, record: RequestRecord) -> None:
        """The request's time in the queue, in prefill and in decoding."""
        for name, start, end in REQUEST_PHASES:
            start_s, end_s = getattr(record, start), getattr(record, end)
            if math.isnan(start_s):
                continue
            # A request that was cut short ends in the phase that it was in.
            end_s = record.finish_s if math.isnan(end_s) else end_s
            about = {"slo_class": record.slo_class, "status": record.status.value}
            self._write("b", name, start_s, cat="request", id=record.id, args=about)
            self._write("e", name, end_s, cat="request", id=record.id)

    def close(self) -> None:
        """Finish the file and put it in place."""
        self._file.write("\n]}\n")
        self._file.close()
        os.replace(self.partial, self.path)

    def _begin_episode(self, engine: Engine) -> None:
        self._engine = engine
        self._episode += 1
        self._write("M", "process_name", 0.0, args={"name": f"episode {self._episode}"})
        for lane, name in enumerate(LANES):
            self._write("M", "thread_name", 0.0, tid=lane, args={"name": name})
            self._write("M", "thread_sort_index", 0.0, tid=lane, args={"sort_index": lane})

    def _write(self, kind: str, name: str, at_s: float, **more: Any) -> None:
        event = {"ph": kind, "name": name, "pid": self._episode, "tid": 0, "ts": 1e6 * at_s} | more
        self._file.write(self._separator + json.dumps(event, allow_nan=False))
        self._separator = ",\n"
