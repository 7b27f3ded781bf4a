"""Which observers a run wants, from the files that it is to write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from engine.observability.acceptance import AcceptanceByRequest
from engine.observability.metrics import ServingMetrics
from engine.observability.observing import Observer
from engine.observability.step_trace import StepTrace
from engine.observability.tree_log import TreeLog


@dataclass(frozen=True)
class ObserverPaths:
    """Files to write; None writes none of the kind."""

    trace_out: Path | None = None
    """Chrome trace of the steps, for ui.perfetto.dev."""
    metrics_out: Path | None = None
    """Metrics in the Prometheus text format."""
    tree_log: Path | None = None
    """Tree choices as JSON lines, without prompt or output text."""
    acceptance_out: Path | None = None
    """Drafts proposed and accepted by position, one JSON line a request."""


class Observers:
    """Observers that are closed together: `with observers_from(paths) as observers:`."""

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)

    def __enter__(self) -> Observers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write every file, also where one of them fails."""
        with contextlib.ExitStack() as stack:
            for observer in self._observers:
                stack.callback(observer.close)


def observers_from(paths: ObserverPaths, model_name: str | None = None) -> Observers:
    """An observer for each path given; raises UserError when a file cannot be written.

    `model_name` becomes the label of that name in the metrics.
    """
    observers: list[Observer] = []
    with contextlib.ExitStack() as opened:
        # These two open their files at once; the others write theirs when they are closed.
        if paths.tree_log is not None:
            log = TreeLog(paths.tree_log)
            opened.callback(log.close)
            observers.append(log)
        if paths.trace_out is not None:
            observers.append(StepTrace(paths.trace_out))
        opened.pop_all()
    if paths.metrics_out is not None:
        constant = {"model_name": model_name} if model_name else {}
        observers.append(ServingMetrics(paths.metrics_out, constant))
    if paths.acceptance_out is not None:
        observers.append(AcceptanceByRequest(paths.acceptance_out))
    return Observers(observers)
