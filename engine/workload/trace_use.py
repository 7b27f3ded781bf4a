"""How a workload uses a trace: which window of it, at what speed, under which class names.

The rule of scaling: a recorded trace is stretched in time, every gap by the same factor, so that
its mean rate over the window is the wanted one; order, mix and cv of the gaps stay (thinning would
push them towards Poisson). Generated arrivals (ServeGen) scale their rates and keep the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from engine.errors import UserError
from engine.workload.checks import need_positive, need_within
from engine.workload.traces import ArrivalSource, SourceName, Trace, need_source, read_source

MAX_REQUESTS = 1_000_000  # expected in one workload; more is a slip in the units


@dataclass(frozen=True)
class TraceUse:
    """A window of a trace; times in it are the trace's own seconds, before any scaling."""

    source: str
    """NAME:PATH or NAME:PATH#PART of `engine.workload.traces`, or a .csv file."""
    start_s: float = 0.0
    """Start of the window, counted from the first request."""
    length_s: float | None = None
    """Length of the window; None: to the end."""
    draw_start: bool = False
    """Every episode begins at its own place in the window and lasts the workload's duration_s."""
    classes: dict[str, str] = field(default_factory=dict)
    """Our class by the trace's name for it, where the two differ."""

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise UserError(f"trace: source is {self.source!r}; expected NAME:PATH")
        need_source(self.source)
        need_within("trace: start_s", self.start_s, 0.0, 1e12)
        if self.length_s is not None:
            need_positive("trace: length_s", self.length_s)
        if not isinstance(self.draw_start, bool):
            raise UserError(f"trace: draw_start is {self.draw_start!r}; expected true or false")
        if not isinstance(self.classes, dict) or not all(
            isinstance(name, str) for pair in self.classes.items() for name in pair
        ):
            raise UserError(f"trace: classes is {self.classes!r}; expected class names by name")

    @property
    def parsed(self) -> SourceName:
        """The source taken apart."""
        return need_source(self.source)

    def seen_from(self, folder: Path) -> TraceUse:
        """The same with a path that is meant from `folder`."""
        source = self.parsed
        return replace(self, source=str(source._replace(path=folder / source.path)))

    def load(self) -> ArrivalSource:
        """Read the files; take the result along when many episodes are drawn. Raises UserError."""
        return read_source(self.parsed)

    def draw(
        self,
        source: ArrivalSource,
        rate_rps: float | None,
        duration_s: float,
        generator: np.random.Generator,
    ) -> Trace:
        """One episode's arrivals, from 0 to at most `duration_s` on the served clock.

        `rate_rps` is the mean rate that the whole window is scaled to, None for the trace's own.
        Raises UserError for a window without requests or with more than can be served.
        """
        start_s = float(self.start_s)
        end_s = source.duration_s
        if self.length_s is not None:
            end_s = min(end_s, start_s + self.length_s)
        own_rps = source.mean_rate_rps(start_s, end_s) if start_s < end_s else 0.0
        if own_rps <= 0:
            raise UserError(
                f"trace {self.source}: no request from {start_s:g} s on for "
                f"{'ever' if self.length_s is None else f'{self.length_s:g} s'}; it lasts "
                f"{source.duration_s:g} s"
            )
        factor = 1.0 if rate_rps is None else rate_rps / own_rps
        stretch = 1.0 / factor if source.stretches else 1.0
        piece_s = duration_s / stretch
        if self.draw_start and math.isfinite(piece_s):
            start_s += generator.random() * max(end_s - start_s - piece_s, 0.0)
        end_s = min(end_s, start_s + piece_s)
        expected = factor * source.mean_rate_rps(start_s, end_s) * (end_s - start_s) * stretch
        if expected > MAX_REQUESTS:
            raise UserError(
                f"trace {self.source}: the window would bring about {expected:.3g} requests and at "
                f"most {MAX_REQUESTS:,} are possible; give length_s, duration_s, load or rate_rps"
            )
        return source.window(start_s, end_s, factor, generator).stretched(stretch)
