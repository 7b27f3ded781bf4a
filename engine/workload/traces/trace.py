"""A recorded list of arrivals: times, lengths and classes, as arrays; and cutting windows from it.

How a file becomes one is its reader's business; speed and clock are `trace_use`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.protocol import Floats, Ints


class ArrivalSource(ABC):
    """Where arrivals come from that are not drawn from a rate: a trace, or published statistics."""

    name: str
    duration_s: float
    """Windows may be cut from [0, duration_s)."""
    stretches: bool
    """A change of rate stretches time; else rates change and the clock stays."""

    @abstractmethod
    def mean_rate_rps(self, start_s: float, end_s: float) -> float:
        """Requests per second over a window."""

    @abstractmethod
    def window(
        self, start_s: float, end_s: float, factor: float, generator: np.random.Generator
    ) -> Trace:
        """The arrivals in [start_s, end_s), on a clock that starts with the window.

        `factor` is the wanted change of rate, used by a source that does not stretch.
        """


@dataclass(frozen=True, eq=False)
class Trace(ArrivalSource):
    """Arrivals in order, n of them, the first at 0 s unless it is a window of another."""

    name: str
    arrival_s: Floats  # [n] sorted, seconds
    duration_s: float
    prompt_tokens: Ints | None = None  # [n] None: the source has no lengths
    output_tokens: Ints | None = None  # [n]
    slo_class: Ints | None = None  # [n] index into class_names; None: the source has no classes
    class_names: tuple[str, ...] = ()
    step_s: float = 0.0
    """Stamps are rounded down to multiples of this; a window spreads them over it."""
    left_out: int = 0
    """Requests without a prompt token or an output token, which nobody could serve."""

    stretches = True

    def __len__(self) -> int:
        return len(self.arrival_s)

    def mean_rate_rps(self, start_s: float, end_s: float) -> float:
        """Requests in the window over its length."""
        inside = np.searchsorted(self.arrival_s, [start_s, end_s])
        return float(inside[1] - inside[0]) / (end_s - start_s)

    def window(
        self, start_s: float, end_s: float, factor: float, generator: np.random.Generator
    ) -> Trace:
        """The requests that are stamped inside the window; none is moved but within `step_s`."""
        first, last = np.searchsorted(self.arrival_s, [start_s, end_s])
        part = self.picked(np.arange(first, last))
        times_s = part.arrival_s - start_s
        if self.step_s > 0:
            times_s = np.sort(times_s + self.step_s * generator.random(len(times_s)))
            times_s = np.minimum(times_s, np.nextafter(end_s - start_s, 0.0))
        return replace(part, arrival_s=times_s, duration_s=end_s - start_s, step_s=0.0)

    def stretched(self, by: float) -> Trace:
        """The same with every time multiplied: cv of the gaps, order and mix stay as they are."""
        return replace(self, arrival_s=self.arrival_s * by, duration_s=self.duration_s * by)

    def picked(self, index: Ints) -> Trace:
        """Only these requests, in this order."""

        def of(values: Ints | None) -> Ints | None:
            return None if values is None else values[index]

        return replace(
            self,
            arrival_s=self.arrival_s[index],
            prompt_tokens=of(self.prompt_tokens),
            output_tokens=of(self.output_tokens),
            slo_class=of(self.slo_class),
        )


def from_first_arrival(trace: Trace) -> Trace:
    """On a clock that starts with the first request and ends just behind the last.

    Requests without tokens are left out and counted.
    """
    kept = np.ones(len(trace), np.bool_)
    for tokens in (trace.prompt_tokens, trace.output_tokens):
        if tokens is not None:
            kept &= tokens > 0
    part = trace.picked(np.flatnonzero(kept))
    times_s = part.arrival_s - part.arrival_s[:1]
    last_s = float(times_s[-1]) if len(times_s) else 0.0
    # The mean gap, or the step of the stamps, is what the last request may be said to last.
    end_s = last_s + (trace.step_s or max(last_s / max(len(times_s) - 1, 1), 1e-6))
    return replace(part, arrival_s=times_s, duration_s=end_s, left_out=int((~kept).sum()))


def indexed(classes: Sequence[str] | None) -> tuple[Ints | None, tuple[str, ...]]:
    """Class names by request as an index [n], -1 for "", and the names that it points to."""
    if classes is None:
        return None, ()
    names = tuple(sorted(set(classes) - {""}))
    place = {name: at for at, name in enumerate(names)} | {"": -1}
    return np.array([place[name] for name in classes], np.int64), names
