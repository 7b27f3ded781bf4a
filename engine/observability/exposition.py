"""Counters, gauges and histograms, and the Prometheus text format 0.0.4 in which they are read.

Knows no engine: what is counted, and under which name, is decided by `metrics.py`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

Labels = tuple[str, ...]


class Family:
    """All series of one name; a series is the values of the labels, in the order of `labels`."""

    kind = "untyped"

    def __init__(self, name: str, explanation: str, labels: Sequence[str] = ()) -> None:
        self.name, self.explanation, self.labels = name, explanation, tuple(labels)

    def lines(self, constant: dict[str, str]) -> Iterable[str]:
        """Its samples; `constant` labels are added to each."""
        raise NotImplementedError(f"{type(self).__name__} defines no lines()")

    def _sample(self, suffix: str, labels: dict[str, str], value: float) -> str:
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        braced = f"{{{inside}}}" if inside else ""
        return f"{self.name}{suffix}{braced} {_number(value)}"

    def _named(self, series: Labels, constant: dict[str, str]) -> dict[str, str]:
        return constant | dict(zip(self.labels, series, strict=True))


class Scalar(Family):
    """One number a series."""

    def __init__(self, name: str, explanation: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, explanation, labels)
        self.values: dict[Labels, float] = {}

    def lines(self, constant: dict[str, str]) -> Iterable[str]:
        """One sample a series."""
        for series, value in self.values.items():
            yield self._sample("", self._named(series, constant), value)


class Counter(Scalar):
    """A sum that only grows. Its name ends in `_total`, as Prometheus asks."""

    kind = "counter"

    def add(self, amount: float, *series: str) -> None:
        """Add to a series; adding 0 makes it appear, so that a rate over it has a start."""
        self.values[series] = self.values.get(series, 0.0) + amount


class Gauge(Scalar):
    """A value as it is now."""

    kind = "gauge"

    def set(self, value: float, *series: str) -> None:
        """The series' value from now on."""
        self.values[series] = value


class Histogram(Family):
    """How often a value fell below each bound."""

    kind = "histogram"

    def __init__(
        self, name: str, explanation: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        super().__init__(name, explanation, labels)
        self.bounds = tuple(bounds)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def observe(self, value: float, *series: str) -> None:
        """One value; a bound counts what is not above it. NaN is left out."""
        if math.isnan(value):
            return
        counts = self.counts.setdefault(series, [0] * (len(self.bounds) + 1))
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[series] = self.sums.get(series, 0.0) + value

    def lines(self, constant: dict[str, str]) -> Iterable[str]:
        """Cumulative buckets, sum and count of each series."""
        for series, counts in self.counts.items():
            labels = self._named(series, constant)
            below = 0
            for bound, count in zip((*self.bounds, math.inf), counts, strict=True):
                below += count
                yield self._sample("_bucket", labels | {"le": _number(bound)}, below)
            yield self._sample("_sum", labels, self.sums[series])
            yield self._sample("_count", labels, below)


def exposition(families: Iterable[Family], constant: dict[str, str] | None = None) -> str:
    """The text that a Prometheus server scrapes."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.explanation, quotes=False)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += family.lines(constant or {})
    return "\n".join(lines) + "\n"


def _escaped(text: str, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if value != int(value) else str(int(value))
