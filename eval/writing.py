"""How figures are written: numbers, intervals, Markdown tables, strict JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from eval.statistics import Interval


def number(value: float, digits: int, unit: str = "") -> str:
    """A figure; ∞ and – for what is not finite."""
    if math.isinf(value):
        return "∞"
    return "–" if math.isnan(value) else f"{value:.{digits}f}{unit}"


def with_interval(digits: int) -> Callable[[Interval], str]:
    """Writes `mean [low, high]`, the mean alone where one seed shows no interval."""

    def write(interval: Interval) -> str:
        mean = number(interval.mean, digits)
        if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
            return mean
        return f"{mean} [{number(interval.low, digits)}, {number(interval.high, digits)}]"

    return write


def joined(names: Iterable[str]) -> str:
    """a, b and c."""
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; the first column holds names, the others figures."""
    return [
        "| " + " | ".join(columns) + " |",
        "| --- |" + " ---: |" * (len(columns) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def plain(value: Any) -> Any:
    """As JSON has it: text keys, lists, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
